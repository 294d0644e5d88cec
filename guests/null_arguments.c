// Shows: arguments that are not given (accept without an address, times, utimensat) cause no fault on the way.
// Breaks if: the runtime looks at address zero and catches the fault: two signals' time, and a debugger stops there.
// kit: allow unprotected a process that is traced has no new standby, and none that traces
// kit: no-kill the tracer's stops belong to one process
// kit: no-record a tracer's calls cannot be repeated
// kit: no-checkpoint a process that it has made is still there
#include "net.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/times.h>
#include <sys/wait.h>

static void on_calls(void)
{
    struct sockaddr_in address;
    int listener = net_bound(SOCK_STREAM, &address), client, fd;

    CHECK(listen(listener, 2) == 0);
    client = net_connect(&address);
    CHECK((fd = accept(listener, NULL, NULL)) >= 0 && close(fd) == 0 && close(client) == 0);
    client = net_connect(&address);
    CHECK((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0 && close(fd) == 0 && close(client) == 0);
    CHECK(close(listener) == 0);
    CHECK(times(NULL) != (clock_t)-1);
    CHECK((fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) >= 0 && futimens(fd, NULL) == 0);
    FAILS(syscall(SYS_fstat, fd, NULL), EFAULT);
    CHECK(close(fd) == 0);
}

/* The child: how many faults its parent has until it stops itself. */
static int faults_of(pid_t parent, int told)
{
    int status, faults = 0;

    CHECK(ptrace(PTRACE_SEIZE, parent, NULL, NULL) == 0);
    CHECK(write(told, "t", 1) == 1);
    for (;;) {
        CHECK(waitpid(parent, &status, __WALL) == parent && WIFSTOPPED(status));
        int signal = WSTOPSIG(status);
        if (signal == SIGUSR2)
            return ptrace(PTRACE_DETACH, parent, NULL, NULL) == 0 ? faults : -1;
        faults += signal == SIGSEGV;
        CHECK(ptrace(PTRACE_CONT, parent, NULL, (void *)(long)signal) == 0);
    }
}

int main(void)
{
    int ready[2], status;
    char byte;

    CHECK(pipe(ready) == 0 && signal(SIGUSR2, SIG_IGN) != SIG_ERR);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        usleep(200000);
        _exit(faults_of(parent, ready[1]));
    }
    CHECK(child > 0 && read(ready[0], &byte, 1) == 1);
    on_calls();
    CHECK(raise(SIGUSR2) == 0);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) != 0)
        fprintf(stderr, "%d faults\n", WEXITSTATUS(status));
    CHECK(WEXITSTATUS(status) == 0);
    return guest_ok();
}
