// Shows: a signal sent to the process that every thread blocks is taken by the next thread that does not, in its first instructions;
//        also one from a child, and a queued one with its value.
// Breaks if: a signal that finds a thread in its first instructions is put back to the process with a sender or a code that the
//            kernel takes from nobody but the main thread.
// kit: tree
// kit: allow unprotected a thread that is kept from the processor for 10 ms comes too late to a door for its signal
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 25 };

static sigset_t all;
static volatile sig_atomic_t caught[3];
static pid_t child;

static void handler(int signal, siginfo_t *info, void *context)
{
    (void)context;
    if (signal == SIGUSR1) {
        CHECK(info->si_code == SI_USER && info->si_pid == getpid());
        caught[0]++;
    } else if (signal == SIGUSR2) {
        /* Its sender is forgotten if it waits while a standby is made. */
        CHECK(info->si_code == SI_USER);
        caught[1]++;
    } else {
        CHECK(info->si_code == SI_QUEUE && info->si_pid == getpid());
        caught[2] += info->si_value.sival_int;
    }
}

static void *run(void *arg)
{
    int r = (int)guest_num(arg);

    ZERO(pthread_sigmask(SIG_UNBLOCK, &all, NULL));
    for (int i = 0; i < 20000 && (caught[0] < r || caught[1] < r || caught[2] < r * (r + 1) / 2); i++)
        guest_pause_us(100);
    RETURNS(caught[0], r);
    RETURNS(caught[1], r);
    RETURNS(caught[2], r * (r + 1) / 2);
    return NULL;
}

int main(void)
{
    struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART };
    pthread_attr_t attributes;
    sigset_t none;
    int to[2], back[2];
    char byte = 0;

    sigemptyset(&none);
    sigemptyset(&all);
    for (int s = 0; s < 3; s++) {
        int signal = s == 0 ? SIGUSR1 : s == 1 ? SIGUSR2 : SIGRTMIN + 3;
        sigaddset(&all, signal);
        CHECK(sigaction(signal, &action, NULL) == 0);
    }
    ZERO(pthread_sigmask(SIG_BLOCK, &all, NULL));
    CHECK(pipe(to) == 0 && pipe(back) == 0);
    pid_t parent = getpid();
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(close(to[1]) == 0);
        while (read(to[0], &byte, 1) == 1) {
            CHECK(kill(parent, SIGUSR2) == 0);
            CHECK(write(back[1], &byte, 1) == 1);
        }
        _exit(0);
    }
    CHECK(close(to[0]) == 0);
    ZERO(pthread_attr_init(&attributes));
    ZERO(pthread_attr_setsigmask_np(&attributes, &none));
    for (int r = 1; r <= ROUNDS; r++) {
        pthread_t thread;

        CHECK(kill(parent, SIGUSR1) == 0);
        CHECK(sigqueue(parent, SIGRTMIN + 3, (union sigval){ .sival_int = r }) == 0);
        CHECK(write(to[1], &byte, 1) == 1);
        guest_read_all(back[0], &byte, 1);
        ZERO(pthread_create(&thread, &attributes, run, guest_ptr(r)));
        guest_join(thread);
        guest_pause_us(2000);
    }
    ZERO(pthread_attr_destroy(&attributes));
    CHECK(close(to[1]) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
