// Shows: what threads, children, their threads and new images draw from the kernel, in every way: with a seed it is the same in every run.
// Breaks if: with a seed a copy that takes over has another place in a stream, or a thread's stream depends on who runs first.
// kit: varies
// kit: tree
#include "guest.h"
#include <sys/random.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { THREADS = 4, ROUNDS = 60, LINE = 64 };

static char drawn[THREADS][ROUNDS][LINE];

/* By each of the ways that there are, in turn. */
static void draw(int round, char *line)
{
    static const char *const devices[] = { "/dev/urandom", "/dev/random" };
    unsigned char bytes[16] = { 0 };
    int fd;

    if (round % 2 == 0) {
        CHECK(getrandom(bytes, sizeof bytes, round % 4 ? GRND_NONBLOCK : 0) == sizeof bytes);
    } else {
        struct iovec parts[2] = { { bytes, 5 }, { bytes + 5, 11 } };
        fd = open(devices[round % 4 / 2], O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0);
        CHECK((round % 8 < 4 ? readv(fd, parts, 2) : read(fd, bytes, sizeof bytes)) == sizeof bytes);
        CHECK(close(fd) == 0);
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(line + 2 * i, LINE - 2 * i, "%02x", bytes[i]);
}

static void *work(void *arg)
{
    for (int round = 0; round < ROUNDS; round++) {
        draw(round, drawn[guest_num(arg)][round]);
        guest_pause_us(1500);
    }
    return arg;
}

static void draw_all(const char *who)
{
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        threads[i] = guest_start(work, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        CHECK(guest_num(guest_join(threads[i])) == i);
    for (int i = 0; i < THREADS; i++)
        for (int round = 0; round < ROUNDS; round++)
            printf("%s %d %d %s\n", who, i, round, drawn[i][round]);
    CHECK(fflush(stdout) == 0);
}

static void await(pid_t child)
{
    int status;

    CHECK(child > 0);
    RETURNS(waitpid(child, &status, 0), child);
    CHECK(status == 0);
}

int main(int count, char **arguments)
{
    unsigned char byte;
    void *volatile nowhere = (void *)8;

    FAILS(getrandom(&byte, 1, ~0u), EINVAL);
    FAILS(getrandom(nowhere, 1, 0), EFAULT);
    if (count > 1) {
        draw_all(arguments[1]);
        return 0;
    }
    draw_all("first");
    pid_t child = fork();
    if (child == 0) {
        draw_all("child");
        _exit(0);
    }
    await(child);
    child = vfork();
    if (child == 0) {
        execl("/proc/self/exe", "again", "image", NULL);
        _exit(9);
    }
    await(child);
    draw_all("last");
    return guest_ok();
}
