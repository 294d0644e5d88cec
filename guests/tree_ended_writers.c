// Shows: what is still in a pipe or pair of sockets that nobody can write into any more, at standard input and elsewhere, is read to the end.
// Breaks if: such an end counts as one that the program was started with, or as one whose other end is somebody else's.
// kit: tree
#include "guest.h"
#include <sys/socket.h>
#include <sys/wait.h>

enum { NUMBERS = 120 };

/* Reads the numbers slowly, and says their sum. */
static void reader(int from, int out)
{
    int sum = 0, got;
    unsigned char number;

    while ((got = read(from, &number, 1)) == 1) {
        sum += number;
        guest_pause_us(2000);
    }
    CHECK(got == 0);
    guest_write_all(out, &sum, sizeof sum);
    _exit(0);
}

int main(void)
{
    enum { AS_PIPE, AS_SOCKETS, KINDS };
    int ends[2], out[2], status, sum, all = 0;
    unsigned char numbers[NUMBERS];

    CHECK(pipe(out) == 0);
    for (int i = 0; i < NUMBERS; i++)
        numbers[i] = i;
    for (int kind = AS_PIPE; kind < KINDS; kind++)
        for (int as_stdin = 0; as_stdin < 2; as_stdin++) {
            CHECK((kind == AS_PIPE ? pipe(ends) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) == 0);
            pid_t pid = fork();
            CHECK(pid >= 0);
            if (pid == 0) {
                CHECK(close(ends[1]) == 0 && close(out[0]) == 0);
                int from = as_stdin ? dup2(ends[0], 0) : ends[0];
                CHECK(from >= 0 && (!as_stdin || close(ends[0]) == 0));
                reader(from, out[1]);
            }
            guest_write_all(ends[1], numbers, sizeof numbers);
            CHECK(close(ends[1]) == 0 && close(ends[0]) == 0);
        }
    for (int i = 0; i < 2 * KINDS; i++) {
        guest_read_all(out[0], &sum, sizeof sum);
        CHECK(sum == NUMBERS * (NUMBERS - 1) / 2);
        all += sum;
    }
    for (int i = 0; i < 2 * KINDS; i++)
        CHECK(wait(&status) > 0 && status == 0);
    printf("sum %d\n", all);
    return guest_ok();
}
