// Shows: children forked while other threads are inside libc's databases and directories start threads that go the same ways.
// Breaks if: a lock of the runtime's that another thread of the parent's held stays held in the child.
// kit: tree
#include "guest.h"

#include <dirent.h>
#include <nss.h>
#include <pwd.h>
#include <sys/wait.h>

enum { CHILDREN = 10, LOOPS = 4, TURNS = 3, PAUSE_US = 12000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int stop;

static void set_stop(void)
{
    ZERO(pthread_mutex_lock(&lock));
    stop = 1;
    ZERO(pthread_mutex_unlock(&lock));
}

static int is_over(void)
{
    ZERO(pthread_mutex_lock(&lock));
    int is = stop;
    ZERO(pthread_mutex_unlock(&lock));
    return is;
}

static void ask(void)
{
    struct passwd entry, *found;
    char text[4096];

    ZERO(getpwnam_r("root", &entry, text, sizeof text, &found));
    CHECK(found != NULL);
    DIR *folder = opendir("/");
    CHECK(folder != NULL && readdir(folder) != NULL);
    ZERO(closedir(folder));
}

static void *loop(void *arg)
{
    while (!is_over())
        ask();
    return arg;
}

/* Late enough for the child to be one of the group's processes by itself. */
static void *late(void *arg)
{
    guest_pause_us(PAUSE_US);
    for (int i = 0; i < TURNS; i++)
        ask();
    return arg;
}

int main(void)
{
    pthread_t loops[LOOPS];

    /* libc counts its calls without a lock and asks nscd again after a hundred: with threads, that call is anyone's. */
    ZERO(__nss_configure_lookup("passwd", "files"));
    for (int i = 0; i < LOOPS; i++)
        loops[i] = guest_start(loop, NULL);
    for (int i = 0; i < CHILDREN; i++) {
        guest_pause_us(1000);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            guest_join(guest_start(late, NULL));
            _exit(7);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    set_stop();
    for (int i = 0; i < LOOPS; i++)
        guest_join(loops[i]);
    return guest_ok();
}
