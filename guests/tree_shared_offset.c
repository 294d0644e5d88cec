// Shows: a file opened before the fork: parent and child read and write it in turns, each goes on where the other stopped.
// Breaks if: the common position moves twice for one call, or a copy has a position of its own.
// kit: tree
#include "guest.h"
#include <sys/wait.h>

enum { ROUNDS = 260 };

/* One turn: the next record is written, or read and checked, wherever the position is. */
static void turn(int out, int in, long r)
{
    long record[4] = { r, r * r, r + 17, (long)(guest_mix((uint64_t)r) >> 8) }, got[4];

    CHECK(lseek(out, 0, SEEK_CUR) == r * (off_t)sizeof record);
    CHECK(write(out, record, sizeof record) == sizeof record);
    CHECK(read(in, got, sizeof got) == sizeof got && memcmp(got, record, sizeof got) == 0);
    CHECK(lseek(in, 0, SEEK_CUR) == (r + 1) * (off_t)sizeof record);
}

int main(void)
{
    int down[2], up[2], status;
    long told;

    guest_scratch();
    struct guest_name name = guest_path("file");
    int out = open(name.s, O_WRONLY | O_CREAT, 0600), in = open(name.s, O_RDONLY);
    CHECK(out >= 0 && in >= 0 && unlink(name.s) == 0 && pipe(down) == 0 && pipe(up) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (long r = 1; r < 2 * ROUNDS; r += 2) {
            guest_read_all(down[0], &told, sizeof told);
            CHECK(told == r - 1);
            turn(out, in, r);
            guest_write_all(up[1], &r, sizeof r);
        }
        _exit(0);
    }
    for (long r = 0; r < 2 * ROUNDS; r += 2) {
        turn(out, in, r);
        guest_write_all(down[1], &r, sizeof r);
        guest_read_all(up[0], &told, sizeof told);
        CHECK(told == r + 1);
        guest_pause_us(1300);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    guest_scratch_end();
    printf("records %ld\n", (long)(lseek(in, 0, SEEK_END) / (off_t)(4 * sizeof(long))));
    return guest_ok();
}
