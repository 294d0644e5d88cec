// Shows: a lock names its owner by the number that libc keeps of the thread, also in a process made by a bare clone, where that number is the
// parent's until the program itself corrects it. Sandboxes look at it to learn whether they have to.
// Breaks if: the runtime's own knowledge of the number stands there instead.
// kit: tree
// kit: no-record a process in its own pid namespace has two numbers
#include "guest.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* What libc believes this thread's number to be. */
static pid_t libcs_number(void)
{
    pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    CHECK(pthread_mutex_lock(&lock) == 0);
    pid_t number = lock.__data.__owner;
    CHECK(pthread_mutex_unlock(&lock) == 0 && lock.__data.__owner == 0);
    pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
    CHECK(pthread_rwlock_wrlock(&rwlock) == 0 && rwlock.__data.__cur_writer == number);
    CHECK(pthread_rwlock_unlock(&rwlock) == 0);
    return number;
}

static pid_t own_number(void)
{
    return (pid_t)syscall(SYS_gettid);
}

static void *thread(void *argument)
{
    (void)argument;
    CHECK(libcs_number() == own_number());
    return NULL;
}

/* Of a child made without libc, with these flags besides: what its parent's libc said, or, where the kernel has written there, its own. */
static void child_of_clone(unsigned long flags, int asked_kernel)
{
    pid_t before = libcs_number(), *place = NULL;
    int status;
    /* Where libc keeps it. */
    for (pid_t *word = (pid_t *)pthread_self(); !place; word++)
        if (*word == before && word > (pid_t *)pthread_self() + 150)
            place = word;
    pid_t pid = (pid_t)syscall(SYS_clone, flags | SIGCHLD | (asked_kernel ? CLONE_CHILD_SETTID : 0), NULL, NULL, place, 0);
    if (pid < 0) {
        CHECK(errno == EPERM);
        fprintf(stderr, "no right to a namespace\n");
        return;
    }
    if (pid == 0) {
        pid_t number = own_number();
        CHECK(libcs_number() == (asked_kernel ? number : before));
        *place = number;
        CHECK(libcs_number() == number);
        _exit(3);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 3);
    CHECK(libcs_number() == before);
}

int main(void)
{
    int status;
    CHECK(libcs_number() == own_number());
    for (int i = 0; i < 5; i++) {
        child_of_clone(0, 0);
        child_of_clone(0, 1);
        child_of_clone(CLONE_NEWPID | (geteuid() ? CLONE_NEWUSER : 0), 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            pthread_t other;
            CHECK(libcs_number() == own_number());
            guest_pause_us(40000);
            CHECK(pthread_create(&other, NULL, thread, NULL) == 0 && pthread_join(other, NULL) == 0);
            CHECK(libcs_number() == own_number());
            _exit(4);
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 4);
        pthread_t other;
        CHECK(pthread_create(&other, NULL, thread, NULL) == 0 && pthread_join(other, NULL) == 0);
    }
    return guest_ok();
}
