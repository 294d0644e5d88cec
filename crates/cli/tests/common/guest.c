/* A guest that says "ready", then does what its argument says. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/ptrace.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t got;
static void note(int signal) { got = signal; }

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int wanted;

/* Says each number once, in order: a copy that had lost any of it would repeat one or leave one out. */
static void *count(void *unused) {
    for (int said = 0;; said++) {
        pthread_mutex_lock(&lock);
        while (wanted == said) pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
        printf("count %d\n", said + 1);
        fflush(stdout);
    }
    return unused;
}

/* Sends to a queue that is full, and waits there. */
static void *count_one_more(void *counter) {
    pthread_setname_np(pthread_self(), "sender");
    eventfd_write(*(int *)counter, 1);
    return 0;
}

/* Makes a call that no log can carry. */
static void refuse(int unused) {
    (void)unused;
    ptrace(PTRACE_TRACEME + 1000, 0, 0, 0);
    (void)!write(1, "refused\n", 8);
}

/* Has a child that does what the further arguments say, tells of its signals, and ends at SIGTERM. */
static int be_parent(void) {
    sigset_t none;
    sigemptyset(&none);
    for (;;) {
        sigsuspend(&none);
        printf(got == SIGCHLD ? "child signal\n" : "parent signal %d\n", (int)got);
        fflush(stdout);
        if (got == SIGTERM) return 7;
    }
}

/* Speaks to the service manager, as sd_notify does. */
static int notify(const char *text) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const char *name = getenv("NOTIFY_SOCKET");
    if (!name || strlen(name) >= sizeof to.sun_path) return 1;
    strcpy(to.sun_path, name);
    if (name[0] == '@') to.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + strlen(name);
    int failed = sendto(fd, text, strlen(text), 0, (struct sockaddr *)&to, length) < 0;
    close(fd);
    return failed;
}

/* Waits for ever, in a call that is the first one of this process. */
static void wait_at_once(int kind, const char *path, int queue, int set, const int *full) {
    struct sembuf down = {.sem_op = -1};
    struct flock whole = {.l_type = F_WRLCK};
    struct {
        long type;
        char text[8];
    } message;
    sigset_t user;
    sigemptyset(&user);
    sigaddset(&user, SIGUSR1);
    switch (kind) {
    case 0: sigwaitinfo(&user, 0); break;
    case 1: pause(); break;
    case 2: sigsuspend(&user); break;
    case 3: flock(open(path, O_RDWR), LOCK_EX); break;
    case 4: fcntl(open(path, O_RDWR), F_SETLKW, &whole); break;
    case 5: semop(set, &down, 1); break;
    case 6: msgrcv(queue, &message, sizeof message.text, 0, 0); break;
    case 7: (void)!write(full[1], &message, 1); break;
    case 8: syscall(SYS_futex, &wanted, FUTEX_WAIT, 0, 0, 0, 0); break;
    }
    _exit(1);
}

/* A child for each way to do that; ends with them at SIGTERM. */
static int be_parent_of_waiters(const char *path) {
    enum { KINDS = 9 };
    int queue = msgget(IPC_PRIVATE, 0600), set = semget(IPC_PRIVATE, 1, 0600), full[2];
    int file = open(path, O_CREAT | O_RDWR, 0600);
    struct flock whole = {.l_type = F_WRLCK};
    pid_t children[KINDS];
    sigset_t term, none;
    sigemptyset(&none);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    if (pipe2(full, O_NONBLOCK) != 0 || flock(file, LOCK_EX) != 0 || fcntl(file, F_SETLK, &whole) != 0) return 95;
    /* Pages to the last byte. */
    static const char filler[64];
    while (write(full[1], filler, sizeof filler) > 0)
        ;
    fcntl(full[1], F_SETFL, 0);
    for (int kind = 0; kind < KINDS; kind++)
        if ((children[kind] = fork()) == 0) wait_at_once(kind, path, queue, set, full);
    sigprocmask(SIG_BLOCK, &term, 0);
    signal(SIGTERM, note);
    puts("ready");
    fflush(stdout);
    while (!got) sigsuspend(&none);
    for (int kind = 0; kind < KINDS; kind++) kill(children[kind], SIGTERM);
    while (wait(0) > 0)
        ;
    msgctl(queue, IPC_RMID, 0);
    semctl(set, 0, IPC_RMID);
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "wait";
    if (strcmp(what, "notify") == 0) {
        char text[64];
        snprintf(text, sizeof text, "READY=1\nMAINPID=%d\nSTATUS=up", (int)getpid());
        return notify(text) || notify("STOPPING=1");
    }
    if (strcmp(what, "parent") == 0) {
        sigset_t all, old;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, &old);
        if (fork() != 0) {
            signal(SIGTERM, note);
            signal(SIGCHLD, note);
            return be_parent();
        }
        sigprocmask(SIG_SETMASK, &old, 0);
        /* The further arguments' child, with the program's name in front of them again. */
        argv[1] = argv[0];
        argv++;
        what = argv[1];
    }
    if (strcmp(what, "brood") == 0) {
        /* So many children, one after the other, each gone at once. */
        for (int left = atoi(argv[2]); left > 0; left--) {
            pid_t pid = fork();
            if (pid == 0) _exit(left % 100);
            int status;
            if (waitpid(pid, &status, 0) != pid || status != left % 100 << 8) return 96;
        }
        what = "wait";
    }
    if (strcmp(what, "daemon") == 0) {
        /* A child in a session of its own does the rest; the program itself has ended by then. */
        if (fork() != 0) return 0;
        usleep(50000);
        setsid();
        what = "wait";
    }
    if (strcmp(what, "orphan") == 0) {
        /* A child in a session of its own outlives the program by a moment, and dies by a signal. */
        if (fork() != 0) {
            usleep(100000);
            return 0;
        }
        setsid();
        usleep(200000);
        raise(SIGTERM);
    }
    if (strcmp(what, "sessions") == 0) {
        /* Ends with 0 when it is told to; a child in a session of its own goes on. */
        sigset_t term, none;
        sigemptyset(&none);
        sigemptyset(&term);
        sigaddset(&term, SIGTERM);
        sigprocmask(SIG_BLOCK, &term, 0);
        signal(SIGTERM, note);
        if (fork() != 0) {
            while (!got) sigsuspend(&none);
            return 0;
        }
        sigprocmask(SIG_SETMASK, &none, 0);
        setsid();
        what = "wait";
    }
    if (strcmp(what, "waiters") == 0) return be_parent_of_waiters(argv[2]);
    if (strcmp(what, "leave") == 0) {
        if (fork() != 0) return 3;
        what = "wait";
    }
    if (strcmp(what, "become") == 0) {
        char *arguments[] = {argv[0], "wait", 0};
        execv(argv[0], arguments);
        return 97;
    }
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
    if (strcmp(what, "count") == 0) {
        /* One more for each SIGUSR1, said by another thread. */
        sigset_t taken;
        sigemptyset(&taken);
        sigaddset(&taken, SIGUSR1);
        sigprocmask(SIG_BLOCK, &taken, 0);
        if (argc > 2 && strcmp(argv[2], "refused") == 0) signal(SIGUSR2, refuse);
        pthread_t thread;
        pthread_create(&thread, 0, count, 0);
        puts("ready");
        fflush(stdout);
        for (int signal; sigwait(&taken, &signal) == 0;) {
            pthread_mutex_lock(&lock);
            wanted++;
            pthread_cond_signal(&changed);
            pthread_mutex_unlock(&lock);
        }
    }
    if (strcmp(what, "replace") == 0) {
        /* At SIGUSR1 becomes "count". */
        sigset_t taken;
        sigemptyset(&taken);
        sigaddset(&taken, SIGUSR1);
        sigprocmask(SIG_BLOCK, &taken, 0);
        puts("ready");
        fflush(stdout);
        int signal;
        sigwait(&taken, &signal);
        execl(argv[0], argv[0], "count", (char *)0);
        return 97;
    }
    if (strcmp(what, "counter") == 0) {
        /* At SIGTERM tells what came through the counter, which a child has had as well, and which is full. */
        sigset_t term;
        sigemptyset(&term);
        sigaddset(&term, SIGTERM);
        sigprocmask(SIG_BLOCK, &term, 0);
        int counter = eventfd(0, 0);
        pid_t child = fork();
        if (child == 0) _exit(0);
        waitpid(child, 0, 0);
        eventfd_write(counter, -2);
        pthread_t thread;
        pthread_create(&thread, 0, count_one_more, &counter);
        puts("ready");
        fflush(stdout);
        for (int signal; sigwait(&term, &signal) == 0;) {
            for (int n = 0; n < 2; n++) {
                eventfd_t got;
                eventfd_read(counter, &got);
                putchar(got == (eventfd_t)-2 ? '1' : got == 1 ? '2' : '?');
            }
            puts(" came");
            return 0;
        }
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
