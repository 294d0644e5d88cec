// Shows: a filter that lets pass only what the program itself needs and ends whoever asks for more; a child under it.
// Breaks if: the runtime makes calls of its own in such a process: a re-clone forks, a child that joins makes a file.
// kit: no-kill nothing can stand by for a process under a filter of its own
// kit: allow unprotected the filter ends protection, for good
// kit: no-record the recording ends at the call that cannot be replayed, and says so
#include "guest.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ROUNDS = 60 };

static void filter(void)
{
    /* What ends, waits, moves bytes and asks for the time, as a sandbox of a server would have it. */
    static const int allowed[] = { SYS_read, SYS_write, SYS_close, SYS_exit, SYS_exit_group, SYS_futex, SYS_nanosleep,
        SYS_clock_nanosleep, SYS_clock_gettime, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_brk, SYS_mmap, SYS_munmap,
        SYS_newfstatat, SYS_fstat, SYS_poll, SYS_gettid };
    struct sock_filter code[3 + 2 * sizeof allowed / sizeof *allowed];
    unsigned short n = 0;

    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i], 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = { n, code };
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    /* One that the kernel does not take binds nothing. */
    FAILS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0), EFAULT);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
}

int main(void)
{
    int ends[2], status;
    uint64_t chain = 1, word;

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(close(ends[0]) == 0);
        guest_pause_us(15000);
        filter();
        while (read(ends[1], &word, sizeof word) == (ssize_t)sizeof word) {
            word = guest_mix(word);
            guest_write_all(ends[1], &word, sizeof word);
        }
        _exit(7);
    }
    CHECK(close(ends[1]) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        guest_write_all(ends[0], &chain, sizeof chain);
        guest_read_all(ends[0], &word, sizeof word);
        CHECK(word == guest_mix(chain));
        chain = word;
        guest_pause_us(2000);
    }
    CHECK(close(ends[0]) == 0);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    printf("rounds %d, chain %016lx\n", ROUNDS, (unsigned long)chain);
    return guest_ok();
}
