// Shows: two eventfds made before the fork hand a turn back and forth; a third, a semaphore, is filled by one and emptied by both.
// Breaks if: a count is added or taken a second time when the process in the call goes on in its other copy.
// kit: tree
#include "guest.h"
#include <sys/eventfd.h>
#include <sys/wait.h>

enum { ROUNDS = 400 };

static void add(int fd, uint64_t n) { CHECK(write(fd, &n, sizeof n) == sizeof n); }

static uint64_t take(int fd)
{
    uint64_t n;

    CHECK(read(fd, &n, sizeof n) == sizeof n);
    return n;
}

int main(void)
{
    int down = eventfd(0, EFD_CLOEXEC), up = eventfd(0, EFD_CLOEXEC), status;
    int items = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE | EFD_NONBLOCK);
    uint64_t sum = 0, left;

    CHECK(down >= 0 && up >= 0 && items >= 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (uint64_t r = 1; r <= ROUNDS; r++) {
            CHECK(take(down) == r);
            if (r % 2)
                CHECK(take(items) == 1);
            add(up, r * 2);
        }
        _exit(0);
    }
    for (uint64_t r = 1; r <= ROUNDS; r++) {
        if (r % 2)
            add(items, 2);
        add(down, r);
        uint64_t n = take(up);
        CHECK(n == r * 2);
        sum += n;
        if (r % 4 == 0)
            CHECK(take(items) == 1);
        guest_pause_us(1000);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    for (left = 0; read(items, &(uint64_t){ 0 }, sizeof(uint64_t)) == sizeof(uint64_t); left++)
        ;
    CHECK(errno == EAGAIN);
    printf("sum %llu, left %llu\n", (unsigned long long)sum, (unsigned long long)left);
    return guest_ok();
}
