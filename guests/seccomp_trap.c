// Shows: a filter that traps some calls: the handler is told which call and where, gives it a result, or goes on elsewhere.
// Breaks if: SIGSYS of a filter is taken for one of the runtime's own, and the call seems to have returned its own number.
// kit: no-kill nothing can stand by for a process under a filter of its own
// kit: allow unprotected the filter ends protection, for good
// kit: no-record the recording ends at the call that cannot be replayed, and says so
#include "guest.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <ucontext.h>

enum { ROUNDS = 60, BY_FILTER = 1 };

static volatile sig_atomic_t number, runs, leaves;
static sigjmp_buf back;
extern const char behind_call[];
static const char *volatile where;

static void on_sigsys(int signal, siginfo_t *info, void *arg)
{
    greg_t *regs = ((ucontext_t *)arg)->uc_mcontext.gregs;

    CHECK(signal == SIGSYS && info->si_code == BY_FILTER && info->si_arch == AUDIT_ARCH_X86_64);
    CHECK(info->si_errno == 7 && regs[REG_RAX] == info->si_syscall && regs[REG_RIP] == (greg_t)info->si_call_addr);
    number = info->si_syscall;
    where = (const char *)info->si_call_addr;
    runs++;
    if (leaves)
        siglongjmp(back, 1);
    regs[REG_RAX] = number == SYS_getuid ? 4711 : -EPERM;
}

static void filter(void)
{
    static const unsigned trapped[] = { SYS_uname, SYS_getuid, SYS_mkdir, SYS_openat2 };
    struct sock_filter code[2 + 2 * sizeof trapped / sizeof *trapped];
    unsigned short n = 0;

    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < sizeof trapped / sizeof *trapped; i++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, trapped[i], 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP | 7);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = { n, code };
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
}

int main(void)
{
    struct sigaction action = { .sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO };
    struct utsname name;
    long result;
    volatile int expected = 0;

    CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    for (int r = 0; r < 20; r++)
        guest_pause_us(1000);
    filter();
    for (int r = 0; r < ROUNDS; r++) {
        FAILS(uname(&name), EPERM);
        CHECK(number == SYS_uname && runs == ++expected);
        FAILS(mkdir("/nowhere/at/all", 0700), EPERM);
        CHECK(number == SYS_mkdir && runs == ++expected);
        RETURNS(getuid(), 4711);
        CHECK(runs == ++expected);
        __asm__ volatile("syscall\n.globl behind_call\nbehind_call:"
                         : "=a"(result)
                         : "a"((long)SYS_uname), "D"(&name)
                         : "rcx", "r11", "memory");
        CHECK(result == -EPERM && where == behind_call && runs == ++expected);
        leaves = 1;
        if (sigsetjmp(back, 1) == 0)
            (void)!uname(&name);
        leaves = 0;
        CHECK(runs == ++expected);
        /* And sent it is a signal like others; its handler would complain. */
        CHECK(signal(SIGSYS, SIG_IGN) != SIG_ERR && raise(SIGSYS) == 0);
        CHECK(sigaction(SIGSYS, &action, NULL) == 0);
        guest_pause_us(300);
    }
    printf("trapped %d\n", (int)runs);
    return guest_ok();
}
