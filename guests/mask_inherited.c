// Shows: what a thread, a child and a new image get of signals: the mask goes on, handlers go at exec, what is ignored stays, what waits is left.
// Breaks if: a copy's real mask, in which all is blocked, reaches a child or an image; or a handler's address does.
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 12 };

static void on_signal(int signal)
{
    (void)signal;
}

static int is(const sigset_t *set, int signal)
{
    return sigismember(set, signal);
}

static void *thread(void *arg)
{
    sigset_t mask, waits;

    ZERO(pthread_sigmask(SIG_BLOCK, NULL, &mask));
    CHECK(is(&mask, SIGUSR1) && is(&mask, SIGHUP) && !is(&mask, SIGTERM) && !is(&mask, SIGCHLD));
    CHECK(sigpending(&waits) == 0 && is(&waits, SIGHUP) && !is(&waits, SIGUSR1));
    return arg;
}

static int image(void)
{
    struct sigaction told;
    sigset_t mask, waits;

    CHECK(sigprocmask(SIG_BLOCK, NULL, &mask) == 0);
    CHECK(is(&mask, SIGUSR1) && is(&mask, SIGHUP) && !is(&mask, SIGTERM) && !is(&mask, SIGCHLD) && !is(&mask, SIGALRM));
    CHECK(sigpending(&waits) == 0 && is(&waits, SIGUSR1) && !is(&waits, SIGHUP));
    CHECK(sigaction(SIGPIPE, NULL, &told) == 0 && told.sa_handler == SIG_IGN);
    CHECK(sigaction(SIGUSR2, NULL, &told) == 0 && told.sa_handler == SIG_DFL);
    for (int signal = 1; signal < 32; signal++)
        CHECK(sigaction(signal, NULL, &told) == 0 && (told.sa_handler == SIG_DFL || told.sa_handler == SIG_IGN));
    return 23;
}

int main(int argc, char **argv)
{
    struct sigaction act = { .sa_handler = on_signal };
    sigset_t mask;
    int status;

    if (argc > 1)
        return image();
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR && sigaction(SIGUSR2, &act, NULL) == 0);
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigaddset(&mask, SIGHUP);
    CHECK(sigprocmask(SIG_SETMASK, &mask, NULL) == 0 && kill(getpid(), SIGHUP) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        sigset_t waits;
        guest_join(guest_start(thread, NULL));
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            CHECK(sigpending(&waits) == 0 && !is(&waits, SIGHUP) && !is(&waits, SIGUSR1));
            CHECK(raise(SIGUSR1) == 0 && sigpending(&waits) == 0 && is(&waits, SIGUSR1));
            execl("/proc/self/exe", argv[0], "image", (char *)NULL);
            _exit(99);
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 23);
        CHECK(sigpending(&waits) == 0 && is(&waits, SIGHUP));
        guest_pause_us(500);
    }
    return guest_ok();
}
