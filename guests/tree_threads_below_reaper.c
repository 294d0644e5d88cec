// Shows: threads of a process for which no standby can be made: faults, handlers and their masks, signals, children are theirs as natively.
// Breaks if: the runtime handles the signals of such a process and is not there when a thread's handler returns.
// kit: no-kill no process below a reaper of orphans joins
#include "guest.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <ucontext.h>

enum { THREADS = 4, ROUNDS = 20 };

static _Thread_local int faults, signals;
static pthread_t threads[THREADS];

static void on_fault(int signal, siginfo_t *info, void *context)
{
    ucontext_t *there = context;

    CHECK(signal == SIGSEGV && info->si_addr == NULL);
    faults++;
    there->uc_mcontext.gregs[REG_RIP] += 3;
    there->uc_mcontext.gregs[REG_RAX] = 7;
}

static void on_signal(int signal)
{
    sigset_t now;

    CHECK(signal == SIGUSR1);
    ZERO(pthread_sigmask(SIG_SETMASK, NULL, &now));
    CHECK(sigismember(&now, SIGUSR1) == 1 && sigismember(&now, SIGUSR2) == 0);
    signals++;
}

static void *work(void *arg)
{
    sigset_t now;

    for (int r = 0; r < ROUNDS; r++) {
        long got;
        __asm__ volatile("xor %%eax, %%eax\n\t.byte 0x48, 0x8b, 0x00" : "=a"(got) : : "memory");
        CHECK(got == 7 && faults == r + 1);
        ZERO(pthread_kill(pthread_self(), SIGUSR1));
        CHECK(signals == r + 1);
        ZERO(pthread_sigmask(SIG_SETMASK, NULL, &now));
        CHECK(sigismember(&now, SIGUSR1) == 0 && sigismember(&now, SIGSEGV) == 0);
    }
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        _exit(signals);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == ROUNDS);
    return arg;
}

static int child(void)
{
    struct sigaction fault = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
    struct sigaction plain = { .sa_handler = on_signal };

    CHECK(sigaction(SIGSEGV, &fault, NULL) == 0 && sigaction(SIGUSR1, &plain, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        threads[i] = guest_start(work, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        CHECK(guest_num(guest_join(threads[i])) == i);
    return 0;
}

int main(void)
{
    int status;

    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        _exit(child());
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return guest_ok();
}
