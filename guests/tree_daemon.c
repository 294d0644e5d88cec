// Shows: a daemon as they are made: two forks, a session of its own, another folder, a locked file with its number; it serves and ends by SIGTERM.
// Breaks if: the grandchild that goes on in its other copy has lost its session, its folder, its lock or its number.
// kit: tree
#include "net.h"
#include <signal.h>
#include <sys/file.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { QUESTIONS = 120 };

static volatile sig_atomic_t ended;

static void on_term(int signal)
{
    (void)signal;
    ended = 1;
}

static void daemon_work(int ready, struct sockaddr_un *name)
{
    struct sigaction act = { .sa_handler = on_term };
    sigset_t term, before;
    char text[32];
    struct guest_name file = guest_path("pid");
    int lock = open(file.s, O_RDWR | O_CREAT | O_CLOEXEC, 0644), listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(sigaction(SIGTERM, &act, NULL) == 0);
    CHECK(lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0 && ftruncate(lock, 0) == 0);
    int n = snprintf(text, sizeof text, "%d\n", (int)getpid());
    CHECK(write(lock, text, (size_t)n) == n && chdir("/") == 0 && umask(027) != 077);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)name, sizeof *name) == 0 && listen(listener, 4) == 0);
    CHECK(write(ready, "r", 1) == 1 && close(ready) == 0);
    pid_t session = getsid(0);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(fd >= 0);
    for (long q; read(fd, &q, sizeof q) == sizeof q;) {
        char here[PATH_MAX];
        CHECK(getcwd(here, sizeof here) && strcmp(here, "/") == 0 && getsid(0) == session && session != getpid());
        CHECK(pread(lock, text, sizeof text, 0) == n && atoi(text) == getpid());
        q = q * 2 + 1;
        guest_write_all(fd, &q, sizeof q);
    }
    /* Blocked while it is asked for: a SIGTERM between the question and a pause would leave the pause for ever. */
    CHECK(sigemptyset(&term) == 0 && sigaddset(&term, SIGTERM) == 0 && sigprocmask(SIG_BLOCK, &term, &before) == 0);
    while (!ended)
        sigsuspend(&before);
    CHECK(unlink(file.s) == 0 && unlink(name->sun_path) == 0);
    _exit(0);
}

int main(void)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    int ends[2], status;
    char text[32] = { 0 };

    guest_scratch();
    struct guest_name path = guest_path("socket"), file = guest_path("pid");
    CHECK(strlen(path.s) < sizeof name.sun_path);
    memcpy(name.sun_path, path.s, strlen(path.s) + 1);
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(setsid() == getpid());
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            daemon_work(ends[1], &name);
        _exit(0);
    }
    CHECK(close(ends[1]) == 0 && waitpid(pid, &status, 0) == pid && status == 0);
    guest_read_all(ends[0], text, 1);
    int at = open(file.s, O_RDONLY | O_CLOEXEC), fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(at >= 0 && read(at, text, sizeof text - 1) > 0);
    pid_t daemon = atoi(text);
    CHECK(daemon > 0 && daemon != pid && kill(daemon, 0) == 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&name, sizeof name) == 0);
    for (long q = 0; q < QUESTIONS; q++) {
        long answer = q;
        guest_write_all(fd, &answer, sizeof answer);
        guest_read_all(fd, &answer, sizeof answer);
        CHECK(answer == q * 2 + 1);
        if (q % 10 == 0)
            FAILS(flock(at, LOCK_EX | LOCK_NB), EWOULDBLOCK);
        guest_pause_us(2500);
    }
    CHECK(close(fd) == 0 && kill(daemon, SIGTERM) == 0);
    while (flock(at, LOCK_EX) != 0)
        CHECK(errno == EINTR);
    /* The lock is free once the daemon's last descriptor is, which is behind its last file. */
    FAILS(access(file.s, F_OK), ENOENT);
    FAILS(wait(&status), ECHILD);
    CHECK(close(at) == 0);
    guest_scratch_end();
    printf("questions %d\n", QUESTIONS);
    return guest_ok();
}
