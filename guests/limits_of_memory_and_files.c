// Shows: RLIMIT_AS and RLIMIT_FSIZE far below what the runtime itself maps and makes, and a child that lives under them.
// Breaks if: the segment counts against the guest's address space, or joining makes a file that is too large: SIGXFSZ.
// kit: no-kill under a limit of the size of files a child cannot join, and is killed like any other process
// kit: allow unprotected such a child is never protected
#include "guest.h"
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { ROUNDS = 30 };
static const size_t large = (size_t)600 << 20, small = (size_t)4 << 20;

static void child(void)
{
    struct rlimit files = { 100 << 10, 100 << 10 };

    CHECK(setrlimit(RLIMIT_FSIZE, &files) == 0);
    /* Long enough to be worth a standby. */
    for (int r = 0; r < 20; r++)
        guest_pause_us(2000);
    CHECK(getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur == 100 << 10 && files.rlim_max == 100 << 10);
    _exit(5);
}

int main(void)
{
    struct rlimit tight = { (rlim_t)400 << 20, (rlim_t)800 << 20 }, now;
    int status;

    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        child();
    CHECK(setrlimit(RLIMIT_AS, &tight) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(getrlimit(RLIMIT_AS, &now) == 0);
        CHECK(now.rlim_cur == tight.rlim_cur && now.rlim_max == tight.rlim_max);
        char *piece = mmap(NULL, small, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(piece != MAP_FAILED);
        memset(piece, r, small);
        CHECK(mmap(NULL, large, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
        CHECK(munmap(piece, small) == 0);
        /* Lowered a little each time, soft and hard: what was added by others must not add up. */
        tight.rlim_cur -= 1 << 20;
        tight.rlim_max -= 1 << 20;
        CHECK(prlimit(0, RLIMIT_AS, &tight, &now) == 0 && now.rlim_cur == tight.rlim_cur + (1 << 20));
        guest_pause_us(1500);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 5);
    printf("limit %ld MiB\n", (long)(tight.rlim_cur >> 20));
    return guest_ok();
}
