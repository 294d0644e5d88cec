// Shows: a process whose number is also the upper half of its libraries' addresses makes and joins threads.
// Breaks if: the runtime looks for the thread id in libc's control block and finds a half of a pointer: the join never ends.
// kit: tree
#include "guest.h"
#include <linux/sched.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ROUNDS = 40 };

static void *run(void *arg) { return guest_ptr(guest_num(arg) + 1); }

static int with_that_number(void)
{
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(guest_num(guest_join(guest_start(run, guest_ptr(r)))) == r + 1);
        guest_pause_us(300);
    }
    return 0;
}

int main(int argc, char **argv)
{
    char own[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    int status;

    if (argc > 1 && strcmp(argv[1], "child") == 0)
        return with_that_number();
    CHECK(n > 0);
    own[n] = 0;
    /* Without randomisation libraries lie below 0x7fff_ffff_ffff. */
    pid_t number = 0x7fff;
    struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&number, .set_tid_size = 1 };
    pid_t child = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    /* Without the privilege, or where somebody has the number, any other process has to do. */
    if (child < 0)
        child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        personality(ADDR_NO_RANDOMIZE);
        execl(own, own, "child", (char *)NULL);
        _exit(127);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    puts("ok");
    return 0;
}
