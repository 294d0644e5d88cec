// Shows: threads that allocate and free between their calls, beside threads that make children.
// Breaks if: a copy that was made while a thread waited in fork for an allocator's lock gives it that lock before others that were earlier.
// kit: tree
#include "guest.h"
#include <sys/wait.h>

enum { THREADS = 6, ROUNDS = 150, BYTES = 33000 };

static void makes_children(int me)
{
    for (int r = 0; r < ROUNDS / 3; r++) {
        int status, code = me * 40 + r;
        pid_t child = fork();

        CHECK(child >= 0);
        if (child == 0) {
            if (r % 8 == 0)
                guest_pause_us(15000);
            _exit(code);
        }
        RETURNS(waitpid(child, &status, 0), child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code);
    }
}

static void allocates(int me)
{
    unsigned char byte;

    for (int r = 0; r < ROUNDS; r++) {
        int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
        unsigned char *pieces[4];

        CHECK(fd >= 0);
        for (int p = 0; p < 4; p++) {
            pieces[p] = malloc(BYTES + 1000 * (size_t)me);
            CHECK(pieces[p] != NULL);
            pieces[p][r] = (unsigned char)r;
        }
        RETURNS(read(fd, &byte, 1), 1);
        for (int p = 0; p < 4; p++) {
            CHECK(pieces[p][r] == (unsigned char)r);
            free(pieces[p]);
        }
        ZERO(close(fd));
        if (r % 8 == 0)
            guest_pause_us(300);
    }
}

static void *works(void *arg)
{
    int me = (int)guest_num(arg);

    (me < 2 ? makes_children : allocates)(me);
    return NULL;
}

int main(void)
{
    guest_run(works, THREADS);
    FAILS(waitpid(-1, NULL, 0), ECHILD);
    return guest_ok();
}
