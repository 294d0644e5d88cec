// Shows: SIGSYS is a signal like others: raise, kill, pthread_kill and sigqueue run its handler, with who sent it; blocked it waits; ignored it is nothing.
// Breaks if: the runtime, which uses SIGSYS itself, takes the program's for its own, or its own for the program's.
#include "guest.h"
#include <signal.h>
#include <sys/syscall.h>

enum { ROUNDS = 40, WAYS = 5 };

static volatile sig_atomic_t handled, code, value, sender;

static void on_sigsys(int signal, siginfo_t *info, void *context)
{
    (void)context;
    CHECK(signal == SIGSYS && info->si_signo == SIGSYS);
    handled++;
    code = info->si_code;
    sender = info->si_pid;
    value = code == SI_QUEUE ? info->si_value.sival_int : -1;
}

static void send(int way)
{
    switch (way) {
    case 0:
        CHECK(raise(SIGSYS) == 0);
        break;
    case 1:
        CHECK(kill(getpid(), SIGSYS) == 0);
        break;
    case 2:
        ZERO(pthread_kill(pthread_self(), SIGSYS));
        break;
    case 3:
        CHECK(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGSYS) == 0);
        break;
    default:
        CHECK(sigqueue(getpid(), SIGSYS, (union sigval) { .sival_int = 4711 }) == 0);
    }
}

int main(void)
{
    static const int codes[WAYS] = { SI_TKILL, SI_USER, SI_TKILL, SI_TKILL, SI_QUEUE };
    struct sigaction action = { .sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO }, told;
    struct sigaction ignored = { .sa_handler = SIG_IGN };
    sigset_t block, waits;
    int expected = 0;

    sigemptyset(&block);
    sigaddset(&block, SIGSYS);
    for (int r = 0; r < ROUNDS; r++) {
        int way = r % WAYS;
        CHECK(sigaction(SIGSYS, &action, NULL) == 0);
        CHECK(sigaction(SIGSYS, NULL, &told) == 0 && told.sa_sigaction == on_sigsys);
        send(way);
        CHECK(handled == ++expected && code == codes[way] && sender == getpid());
        CHECK(value == (way == 4 ? 4711 : -1));

        CHECK(sigprocmask(SIG_BLOCK, &block, NULL) == 0);
        send(way);
        guest_pause_us(300);
        CHECK(handled == expected);
        CHECK(sigpending(&waits) == 0 && sigismember(&waits, SIGSYS) == 1);
        CHECK(sigprocmask(SIG_UNBLOCK, &block, NULL) == 0);
        CHECK(handled == ++expected && code == codes[way]);
        CHECK(sigpending(&waits) == 0 && sigismember(&waits, SIGSYS) == 0);

        CHECK(sigprocmask(SIG_BLOCK, &block, NULL) == 0);
        send(way);
        CHECK(sigaction(SIGSYS, &ignored, NULL) == 0);
        CHECK(sigprocmask(SIG_UNBLOCK, &block, NULL) == 0);
        send(way);
        guest_pause_us(500);
        CHECK(handled == expected);
    }
    printf("handled %d\n", (int)handled);
    return guest_ok();
}
