// Shows: signals that were sent while they were blocked, also those of faults and SIGSYS, outlive an exec, with values and in order; what
// is ignored stays so, and the limits of memory are what they were.
// Breaks if: what waits in the runtime's queue, or in its shadows of dispositions and limits, ends with the image.
// kit: args first
// kit: no-kill between two images nobody follows, and an image made after a failover has the kernel's pid
// kit: no-record the replay of an image does not know what was waiting when it began
#include "guest.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { VALUES = 3 };
static const int ignored[] = { SIGSEGV, SIGFPE, SIGUSR2, SIGPIPE }, sent[] = { SIGUSR1, SIGBUS, SIGTRAP, SIGTERM };

static void first(char **argv)
{
    struct rlimit memory = { (rlim_t)900 << 20, (rlim_t)2000 << 20 }, data = { (rlim_t)500 << 20, RLIM_INFINITY };
    sigset_t all;

    ZERO(setrlimit(RLIMIT_AS, &memory));
    ZERO(setrlimit(RLIMIT_DATA, &data));
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        CHECK(signal(ignored[i], SIG_IGN) != SIG_ERR);
    ZERO(sigfillset(&all));
    ZERO(sigprocmask(SIG_BLOCK, &all, NULL));
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++)
        ZERO(kill(getpid(), sent[i]));
    for (int i = 0; i < VALUES; i++)
        ZERO(sigqueue(getpid(), SIGRTMIN + 3, (union sigval){ .sival_int = 70 + i }));
    guest_pause_us(20000);
    execv("/proc/self/exe", (char *[]){ argv[0], (char[]){ "second" }, NULL });
    guest_fail(__FILE__, __LINE__, "exec", errno);
}

static void second(void)
{
    struct rlimit memory, data;
    struct sigaction now;
    sigset_t all, waiting, one;
    siginfo_t info;

    ZERO(getrlimit(RLIMIT_AS, &memory));
    ZERO(getrlimit(RLIMIT_DATA, &data));
    CHECK(memory.rlim_cur == (rlim_t)900 << 20 && memory.rlim_max == (rlim_t)2000 << 20);
    CHECK(data.rlim_cur == (rlim_t)500 << 20 && data.rlim_max == RLIM_INFINITY);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
        ZERO(sigaction(ignored[i], NULL, &now));
        CHECK(now.sa_handler == SIG_IGN);
    }
    ZERO(sigprocmask(SIG_BLOCK, NULL, &all));
    ZERO(sigpending(&waiting));
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++) {
        CHECK(sigismember(&all, sent[i]) == 1 && sigismember(&waiting, sent[i]) == 1);
        ZERO(sigemptyset(&one));
        ZERO(sigaddset(&one, sent[i]));
        RETURNS(sigtimedwait(&one, &info, &(struct timespec){ 5, 0 }), sent[i]);
        CHECK(info.si_code == SI_USER && info.si_pid == getpid());
    }
    ZERO(sigemptyset(&one));
    ZERO(sigaddset(&one, SIGRTMIN + 3));
    for (int i = 0; i < VALUES; i++) {
        RETURNS(sigtimedwait(&one, &info, &(struct timespec){ 5, 0 }), SIGRTMIN + 3);
        RETURNS(info.si_value.sival_int, 70 + i);
    }
    ZERO(sigpending(&waiting));
    CHECK(sigisemptyset(&waiting));
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    if (strcmp(argv[1], "first") == 0)
        first(argv);
    second();
    guest_pause_us(20000);
    puts("all came");
    return guest_ok();
}
