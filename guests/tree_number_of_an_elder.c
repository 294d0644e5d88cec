// Shows: a child has a number of its own, also where the kernel gives one away that a thread has kept over a failover.
// Breaks if: a promoted copy makes a child of that number: `kill` and `pidfd_open` then find the thread, and not the child.
#include "guest.h"
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* A pause so long that what was known of the kernel's next number is old. */
enum { ELDERS = 3, ROUNDS = 9, PAUSE_US = 55000 };

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pid_t elders[ELDERS + 1];
static int begun, is_over;

static void *elder(void *argument)
{
    int over = 0;

    ZERO(pthread_mutex_lock(&guard));
    elders[++begun] = (pid_t)syscall(SYS_gettid);
    ZERO(pthread_mutex_unlock(&guard));
    while (!over) {
        guest_pause_us(1000);
        ZERO(pthread_mutex_lock(&guard));
        over = is_over;
        ZERO(pthread_mutex_unlock(&guard));
    }
    return argument;
}

/* The next one gets this number if it is free; without the right to say so the kernel's own order is as good, and shows less. */
static void next_number_is(pid_t number)
{
    char text[16];
    int length = snprintf(text, sizeof text, "%d", (int)number - 1);
    int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        if (write(fd, text, (size_t)length) != length)
            fprintf(stderr, "numbers cannot be chosen\n");
        close(fd);
    }
}

int main(void)
{
    pthread_t threads[ELDERS];
    int seen = 0;

    elders[0] = getpid();
    for (int i = 0; i < ELDERS; i++)
        threads[i] = guest_start(elder, NULL);
    for (; seen < ELDERS; guest_pause_us(100)) {
        ZERO(pthread_mutex_lock(&guard));
        seen = begun;
        ZERO(pthread_mutex_unlock(&guard));
    }
    for (int round = 0; round < ROUNDS; round++) {
        int status;

        next_number_is(elders[round % (ELDERS + 1)]);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            for (;;)
                pause();
        }
        for (int i = 0; i <= ELDERS; i++)
            CHECK(elders[i] != child);
        RETURNS(kill(child, SIGTERM), 0);
        RETURNS(waitpid(child, &status, 0), child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
        guest_pause_us(PAUSE_US);
    }
    ZERO(pthread_mutex_lock(&guard));
    is_over = 1;
    ZERO(pthread_mutex_unlock(&guard));
    for (int i = 0; i < ELDERS; i++)
        ZERO(pthread_join(threads[i], NULL));
    return guest_ok();
}
