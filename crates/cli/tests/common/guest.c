/* A guest that says "ready", then does what its argument says. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t got;
static void note(int signal) { got = signal; }

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "wait";
    if (strcmp(what, "wait") == 0) {
        sigset_t all, old;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, &old);
        signal(SIGTERM, note);
        signal(SIGINT, note);
        signal(SIGHUP, note);
        signal(SIGUSR1, note);
        puts("ready");
        fflush(stdout);
        while (!got) sigsuspend(&old);
        printf("signal %d\n", (int)got);
        return 7;
    }
    if (strcmp(what, "stubborn") == 0) {
        signal(SIGTERM, SIG_IGN);
        puts("ready");
        fflush(stdout);
        for (;;) pause();
    }
    if (strcmp(what, "exit") == 0) return atoi(argv[2]);
    if (strcmp(what, "die") == 0) {
        raise(atoi(argv[2]));
        return 99;
    }
    if (strcmp(what, "signals") == 0) {
        /* Dispositions and mask as exec gave them. */
        sigset_t blocked;
        sigprocmask(SIG_BLOCK, 0, &blocked);
        for (int s = 1; s < 32; s++) {
            struct sigaction action;
            if (sigaction(s, 0, &action) == 0 && action.sa_handler == SIG_IGN) printf("ignored %d\n", s);
            if (sigismember(&blocked, s)) printf("blocked %d\n", s);
        }
        return 0;
    }
    return 98;
}
