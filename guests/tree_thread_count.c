// Shows: a process of one thread counts one thread, whenever it looks, and its children as well; so it may have a name space of its own.
// Breaks if: a helper of the runtime's can be seen while the program runs: a sandbox that wants to be alone gives up.
// kit: tree
#include "guest.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* Together they leave no processor free: nobody is asked to stand still just while it sleeps. */
enum { CHILDREN = 16, LOOK_MS = 200, PAUSE_US = 150 };

static int64_t now_ms(void) { return guest_now_ns(CLOCK_MONOTONIC) / 1000000; }

/* A folder has two links more than folders in it: one for each thread. */
static void look(int proc)
{
    int64_t begin = now_ms();

    do {
        struct stat task;
        ZERO(fstatat(proc, "self/task/", &task, 0));
        CHECK(task.st_nlink == 3);
        guest_pause_us(PAUSE_US);
        ZERO(fstatat(proc, "self/task/", &task, 0));
        CHECK(task.st_nlink == 3);
    } while (now_ms() - begin < LOOK_MS);
}

int main(void)
{
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    CHECK(proc >= 0);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            look(proc);
            _exit(3);
        }
    }
    look(proc);
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        CHECK(wait(&status) > 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    }
    return guest_ok();
}
