// Shows: POSIX names between processes: a semaphore by sem_open, memory by shm_open, a queue by mq_open, found by a child that execs.
// Breaks if: a name is made twice or found too early, or what processes share by name is not what a copy sees.
// kit: tree
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
// kit: serial one thread at a time: its threads, or processes, do to each other what no lock orders
#include "guest.h"
#include <mqueue.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { ROUNDS = 120 };

static char name[64];

static long *shared(int fd)
{
    long *memory = (long *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    CHECK(memory != MAP_FAILED && close(fd) == 0);
    return memory;
}

static int child(void)
{
    sem_t *turn = sem_open(name, 0);
    int fd = shm_open(name, O_RDWR, 0);
    mqd_t queue = mq_open(name, O_WRONLY);

    CHECK(turn != SEM_FAILED && fd >= 0 && queue != (mqd_t)-1);
    long *memory = shared(fd);
    for (long r = 0; r < ROUNDS; r++) {
        CHECK(sem_wait(turn) == 0);
        CHECK(memory[0] == r && memory[1] == r * r);
        memory[2] = r + 1;
        CHECK(mq_send(queue, (char *)&r, sizeof r, 1) == 0);
    }
    CHECK(sem_close(turn) == 0 && mq_close(queue) == 0 && munmap(memory, 4096) == 0);
    return 0;
}

int main(int argc, char **argv)
{
    struct mq_attr attributes = { .mq_maxmsg = 4, .mq_msgsize = sizeof(long) };
    int status;
    long n;

    if (argc > 1) {
        CHECK(strlen(argv[1]) < sizeof name);
        memcpy(name, argv[1], strlen(argv[1]) + 1);
        return child();
    }
    snprintf(name, sizeof name, "/guest-%d", (int)getpid());
    FAILS(shm_open(name, O_RDWR, 0), ENOENT);
    sem_t *turn = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    mqd_t queue = mq_open(name, O_RDONLY | O_CREAT | O_EXCL, 0600, &attributes);
    CHECK(turn != SEM_FAILED && fd >= 0 && queue != (mqd_t)-1 && ftruncate(fd, 4096) == 0);
    CHECK(sem_open(name, O_CREAT | O_EXCL, 0600, 0) == SEM_FAILED && errno == EEXIST);
    FAILS(shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
    long *memory = shared(fd);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        execl("/proc/self/exe", argv[0], name, (char *)NULL);
        _exit(99);
    }
    for (long r = 0; r < ROUNDS; r++) {
        memory[0] = r;
        memory[1] = r * r;
        CHECK(sem_post(turn) == 0);
        CHECK(mq_receive(queue, (char *)&n, sizeof n, NULL) == sizeof n && n == r && memory[2] == r + 1);
        guest_pause_us(2500);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(sem_unlink(name) == 0 && shm_unlink(name) == 0 && mq_unlink(name) == 0);
    FAILS(shm_unlink(name), ENOENT);
    CHECK(sem_close(turn) == 0 && mq_close(queue) == 0 && munmap(memory, 4096) == 0);
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
