// Shows: processes whose filter ends them for any call but those that they make: threads, locks, handlers, a child, an exec; and strict mode.
// Breaks if: the runtime makes a call that the program does not make, anywhere between the filter and the end.
// kit: no-kill nothing can stand by for a process under a filter of its own
// kit: allow unprotected the filter ends protection, for good
// kit: no-record the recording ends at the call that cannot be replayed, and says so
#include "guest.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { THREADS = 4, ROUNDS = 20, KINDS = 5 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int passed;
static volatile sig_atomic_t handled;

static void filter(const int *calls, size_t count, unsigned verdict, unsigned otherwise, unsigned flags)
{
    struct sock_filter code[128];
    unsigned short n = 0;

    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; i++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, verdict);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise);
    struct sock_fprog program = { n, code };
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == 0);
}

static void filter_all_but(unsigned flags)
{
    /* Of threads, locks, memory, handlers and children; no prctl, sigaltstack, gettid, getpid, affinity, robust lists of others. */
    static const int allowed[] = { SYS_read, SYS_write, SYS_exit, SYS_exit_group, SYS_futex, SYS_clock_nanosleep,
        SYS_clone, SYS_clone3, SYS_mmap, SYS_mprotect, SYS_munmap, SYS_madvise, SYS_brk, SYS_set_robust_list, SYS_rseq,
        SYS_rt_sigprocmask, SYS_rt_sigaction, SYS_rt_sigreturn, SYS_setitimer, SYS_wait4, SYS_getrandom, SYS_close };

    filter(allowed, sizeof allowed / sizeof *allowed, SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS, flags);
}

static void on_alarm(int signal)
{
    (void)signal;
    handled++;
}

static void *pass_on(void *arg)
{
    for (int r = 0; r < ROUNDS; r++) {
        ZERO(pthread_mutex_lock(&lock));
        while (passed % THREADS != (int)guest_num(arg))
            ZERO(pthread_cond_wait(&changed, &lock));
        passed++;
        ZERO(pthread_cond_broadcast(&changed));
        ZERO(pthread_mutex_unlock(&lock));
    }
    return arg;
}

static void work(void)
{
    struct sigaction action = { .sa_handler = on_alarm };
    const struct itimerval often = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };
    pthread_t t[THREADS];
    int status;

    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(pass_on, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        CHECK(guest_num(guest_join(t[i])) == i);
    CHECK(passed == THREADS * ROUNDS);
    while (handled < 10)
        guest_pause_us(300);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(5);
    while (waitpid(child, &status, 0) < 0)
        CHECK(errno == EINTR);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    free(malloc(100000));
}

static void *linger(void *arg)
{
    ZERO(pthread_mutex_lock(&lock));
    while (passed < THREADS * ROUNDS)
        ZERO(pthread_cond_wait(&changed, &lock));
    ZERO(pthread_mutex_unlock(&lock));
    return arg;
}

static void live(int kind)
{
    /* As a unit's filter denies it. */
    static const int denied[] = { SYS_prctl, SYS_sigaltstack, SYS_sched_setaffinity, SYS_process_vm_readv,
        SYS_process_vm_writev, SYS_memfd_create, SYS_membarrier, SYS_rt_tgsigqueueinfo, SYS_get_robust_list, SYS_ptrace };
    char *const arguments[] = { (char *)"exe", (char *)"filtered", NULL };
    pthread_t thread;

    switch (kind) {
    case 0:
        filter_all_but(0);
        work();
        _exit(10);
    case 1:
        thread = guest_start(linger, NULL);
        guest_pause_us(12000);
        filter_all_but(SECCOMP_FILTER_FLAG_TSYNC);
        work();
        guest_join(thread);
        exit(11);
    case 2:
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
        if (write(2, "", 0) == 0)
            syscall(SYS_exit, 12);
        break;
    default:
        filter(denied, sizeof denied / sizeof *denied,
            kind == 3 ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_ALLOW, 0);
        execv("/proc/self/exe", arguments);
    }
    _exit(99);
}

int main(int count, char **arguments)
{
    int status;

    if (count > 1) {
        work();
        CHECK(strcmp(arguments[1], "filtered") == 0);
        return 13;
    }
    for (int kind = 0; kind < KINDS; kind++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            guest_pause_us(15000);
            live(kind);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (kind < 3 ? 10 + kind : 13));
    }
    printf("kinds %d\n", KINDS);
    return guest_ok();
}
