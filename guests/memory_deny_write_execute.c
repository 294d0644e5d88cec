// Shows: a process whose written memory must not become executable (PR_SET_MDWE): threads, clocks, processes.
// Breaks if: the runtime takes its patches for made where the kernel refused them: the first clock read then ends the program.
// kit: no-kill between two images nobody follows
#include "guest.h"
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { THREADS = 3, ROUNDS = 30 };

extern char **environ;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long sum;
static int ends[2];

static void *run(void *arg)
{
    for (int r = 0; r < ROUNDS; r++) {
        char byte = (char)guest_num(arg);
        struct timespec now;

        CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0 && time(NULL) > 0);
        guest_write_all(ends[1], &byte, 1);
        ZERO(pthread_mutex_lock(&lock));
        guest_read_all(ends[0], &byte, 1);
        sum += byte;
        ZERO(pthread_mutex_unlock(&lock));
        guest_pause_us(500);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread[THREADS];
    char *command[] = { argv[0], "again", NULL };
    pid_t child;
    int status;

    if (argc == 1) {
        prctl(65 /* PR_SET_MDWE */, 1 /* PR_MDWE_REFUSE_EXEC_GAIN */, 0, 0, 0);
        /* A kernel that does not know it has nothing to refuse. */
        execv("/proc/self/exe", command);
        CHECK(!"exec");
    }
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    if (prctl(66 /* PR_GET_MDWE */, 0, 0, 0, 0) == 1)
        FAILS(mprotect(page, 4096, PROT_READ | PROT_EXEC), EACCES);
    CHECK(munmap(page, 4096) == 0);
    CHECK(pipe(ends) == 0);
    for (int i = 0; i < THREADS; i++)
        thread[i] = guest_start(run, guest_ptr(i + 1));
    for (int i = 0; i < 5; i++) {
        char *quick[] = { "true", NULL };
        ZERO(posix_spawnp(&child, "true", NULL, NULL, quick, environ));
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        guest_pause_us(2000);
    }
    child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(7);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    for (int i = 0; i < THREADS; i++)
        guest_join(thread[i]);
    printf("%ld\n", sum);
    return guest_ok();
}
