// Shows: a process and its child that call themselves, and map a file of, bytes that are no text in any encoding.
// Breaks if: the supervisor reads what the kernel says of a process as text, and takes it for gone or for a stranger.
#include "guest.h"
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { ROUNDS = 40 };

static void work(const char *who)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    long sum = 0;

    for (int r = 0; r < ROUNDS; r++) {
        ZERO(pthread_mutex_lock(&lock));
        sum += r;
        ZERO(pthread_mutex_unlock(&lock));
        CHECK(getppid() > 0);
        guest_pause_us(2000);
    }
    printf("%s %ld\n", who, sum);
    fflush(stdout);
}

int main(void)
{
    char name[16] = "";
    int status;

    CHECK(prctl(PR_SET_NAME, "\xff) R\x80 (\xfe") == 0);
    CHECK(prctl(PR_GET_NAME, name) == 0 && (unsigned char)name[0] == 0xff);
    guest_scratch();
    struct guest_name path = guest_path(" \xff\xfe x");
    int file = open(path.s, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(file >= 0);
    RETURNS(pwrite(file, "seven bytes", 11, 0), 11);
    char *mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    CHECK(mapped != MAP_FAILED && memcmp(mapped, "seven", 5) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        work("child");
        _exit(7);
    }
    CHECK(pid > 0);
    RETURNS(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    work("parent");
    ZERO(unlink(path.s));
    guest_scratch_end();
    return guest_ok();
}
