// Shows: six threads, each of which does operations of 33 kinds in random order and checks each by itself; MEDLEY_SEED repeats an order.
// Breaks if: an operation that is right by itself is not right beside others that are under way at the moment of a failover.
// kit: tree
#include "medley.h"

/* --- processes --- */

static void child_exits(struct worker *w)
{
    int code = (int)below(w, 256), lives = (int)below(w, 3);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        guest_pause_us(lives * 4000);
        _exit(code);
    }
    if (below(w, 3) == 0) {
        siginfo_t info = { 0 };
        ZERO(AGAIN(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT)));
        CHECK(info.si_pid == child && info.si_code == CLD_EXITED && info.si_status == code);
    }
    int status = ends_of(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code);
    FAILS(waitpid(child, &status, 0), ECHILD);
}

static void child_killed(struct worker *w)
{
    int signal = below(w, 2) ? SIGTERM : SIGKILL;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        for (;;)
            pause();
    guest_pause_us(1000 * below(w, 20));
    ZERO(kill(child, signal));
    int status = ends_of(child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signal);
}

static void child_polled(struct worker *w)
{
    int lives = (int)below(w, 10);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        guest_pause_us(lives * 1000);
        _exit(9);
    }
    int fd = (int)syscall(SYS_pidfd_open, child, 0);
    if (fd >= 0) {
        struct pollfd poll_for = { .fd = fd, .events = POLLIN };
        RETURNS(AGAIN(poll(&poll_for, 1, -1)), 1);
        ZERO(close(fd));
    } else {
        /* LIMITS: a child that has ended behind its parent's failover. */
        CHECK(errno == ESRCH);
    }
    int status = ends_of(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 9);
}

static void program_run(struct worker *w)
{
    static char *const words[] = { "sh", "-c", "exit 3", NULL };
    unsigned way = below(w, 3);
    pid_t child;
    if (way == 2) {
        ZERO(posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ));
    } else if ((child = way == 0 ? vfork() : fork()) == 0) {
        execv("/bin/sh", words);
        _exit(127);
    }
    CHECK(child > 0);
    int status = ends_of(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

static void shell_asked(struct worker *w)
{
    char command[64], said[64] = "";
    int number = (int)below(w, 10000);
    snprintf(command, sizeof command, "echo %d", number);
    FILE *shell = popen(command, "re");
    CHECK(shell != NULL);
    CHECK(fgets(said, sizeof said, shell) != NULL && atoi(said) == number);
    ZERO(pclose(shell));
}

/* --- threads, memory --- */

static void *sums(void *arg)
{
    ZERO(pthread_mutex_lock(&lock));
    counted += guest_num(arg);
    ZERO(pthread_mutex_unlock(&lock));
    return arg;
}

static void thread_made(struct worker *w)
{
    long number = (long)below(w, 1000);
    CHECK(guest_num(guest_join(guest_start(sums, guest_ptr(number)))) == number);
    ZERO(pthread_mutex_lock(&lock));
    counted -= number;
    ZERO(pthread_mutex_unlock(&lock));
}

static void *reads_for_ever(void *arg)
{
    char byte;
    while (read((int)guest_num(arg), &byte, 1) > 0)
        ;
    return NULL;
}

static void thread_cancelled(struct worker *w)
{
    int ends[2];
    ZERO(pipe2(ends, O_CLOEXEC));
    pthread_t thread = guest_start(reads_for_ever, guest_ptr(ends[0]));
    if (below(w, 2))
        RETURNS(AGAIN(write(ends[1], "abc", 3)), 3);
    guest_pause_us(below(w, 2000));
    ZERO(pthread_cancel(thread));
    CHECK(guest_join(thread) == PTHREAD_CANCELED);
    ZERO(close(ends[0]) + close(ends[1]));
}

static void value_shared(struct worker *w)
{
    if (below(w, 3) == 0) {
        ZERO(pthread_rwlock_wrlock(&rwlock));
        written++;
        moved--;
        ZERO(pthread_rwlock_unlock(&rwlock));
    } else {
        ZERO(pthread_rwlock_rdlock(&rwlock));
        CHECK(written + moved == 0);
        ZERO(pthread_rwlock_unlock(&rwlock));
    }
    while (sem_wait(&places) < 0)
        CHECK(errno == EINTR);
    ZERO(sem_post(&places));
}

static void condition_waited(struct worker *w)
{
    struct timespec until = guest_deadline(CLOCK_REALTIME, 1000 * (1 + (long)below(w, 4)));
    ZERO(pthread_mutex_lock(&lock));
    ZERO(pthread_cond_broadcast(&changed));
    int result = pthread_cond_timedwait(&changed, &lock, &until);
    CHECK(result == 0 || result == ETIMEDOUT);
    ZERO(pthread_mutex_unlock(&lock));
}

static void memory_mapped(struct worker *w)
{
    size_t pages = 1 + below(w, 8), bytes = pages * 4096;
    unsigned char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    for (size_t page = 0; page < pages; page++)
        memory[page * 4096] = (unsigned char)(page + 1);
    memory = mremap(memory, bytes, 2 * bytes, MREMAP_MAYMOVE);
    CHECK(memory != MAP_FAILED);
    for (size_t page = 0; page < pages; page++)
        CHECK(memory[page * 4096] == page + 1 && memory[bytes + page * 4096] == 0);
    ZERO(mprotect(memory, bytes, PROT_READ));
    ZERO(munmap(memory, 2 * bytes));
    unsigned char *file = mmap(NULL, FILE_BYTES, PROT_READ, MAP_PRIVATE, w->file, 0);
    CHECK(file != MAP_FAILED);
    ZERO(memcmp(file, w->model, FILE_BYTES));
    ZERO(munmap(file, FILE_BYTES));
}

static void heap_used(struct worker *w)
{
    unsigned char *pieces[8];
    for (int i = 0; i < 8; i++) {
        size_t bytes = 1 + below(w, i < 6 ? 2000 : 300000);
        pieces[i] = malloc(bytes);
        CHECK(pieces[i] != NULL);
        memset(pieces[i], i, bytes);
        pieces[i] = realloc(pieces[i], bytes + 1000);
        CHECK(pieces[i][0] == i && pieces[i][bytes - 1] == i);
    }
    for (int i = 0; i < 8; i++)
        free(pieces[i]);
}

static void chance_asked(struct worker *w)
{
    unsigned char one[16], two[16];
    (void)w;
    RETURNS(syscall(SYS_getrandom, one, sizeof one, 0), (long)sizeof one);
    RETURNS(syscall(SYS_getrandom, two, sizeof two, 0), (long)sizeof two);
    CHECK(memcmp(one, two, sizeof one) != 0);
    CHECK(getpid() != getppid() && syscall(SYS_gettid) > 0);
}

static void (*const operations[])(struct worker *) = {
    pipe_passes, pair_passes, tcp_echoes, datagrams, udp_passes, descriptor_sent, file_written, file_read, names_moved,
    folder_listed, change_noticed, locks_taken, file_sent, memory_file, numbers_given, sleeps, times_out, events_waited,
    signal_handled, signal_taken, timer_tells, child_exits, child_killed, child_polled, program_run, shell_asked, thread_made,
    thread_cancelled, value_shared, condition_waited, memory_mapped, heap_used, chance_asked,
};

static void *works(void *arg)
{
    struct worker *w = own = &workers[guest_num(arg)];
    sigset_t blocked;

    sigemptyset(&blocked);
    sigaddset(&blocked, SIGRTMIN + 1);
    ZERO(pthread_sigmask(SIG_BLOCK, &blocked, NULL));
    for (int i = 0; i < OPERATIONS; i++)
        operations[below(w, sizeof operations / sizeof *operations)](w);
    return NULL;
}

int main(void)
{
    const char *given = getenv("MEDLEY_SEED");
    struct sigaction action = { .sa_handler = on_signal };

    uint64_t seed = given ? strtoull(given, NULL, 10) : guest_mix((uint64_t)guest_now_ns(CLOCK_MONOTONIC));
    fprintf(stderr, "MEDLEY_SEED=%llu\n", (unsigned long long)seed);
    ZERO(sigaction(SIGUSR1, &action, NULL));
    ZERO(sem_init(&places, 0, 2));
    for (int at = 0; at < THREADS; at++) {
        struct worker *w = &workers[at];
        char path[64];
        w->at = at;
        w->state = seed + (uint64_t)at * 7919;
        snprintf(w->folder, sizeof w->folder, "/tmp/medley.XXXXXX");
        CHECK(mkdtemp(w->folder) != NULL);
        path_of(w, path, "file");
        w->file = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        ZERO(w->file < 0 ? -1 : ftruncate(w->file, FILE_BYTES));
        ZERO(unlink(path));
    }
    guest_run(works, THREADS);
    for (int at = 0; at < THREADS; at++)
        ZERO(rmdir(workers[at].folder));
    CHECK(counted == 0 && written + moved == 0);
    FAILS(waitpid(-1, NULL, 0), ECHILD);
    return guest_ok();
}
