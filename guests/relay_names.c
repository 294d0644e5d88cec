// Shows: names made by one thread and renamed, linked or removed by another at once, in strict turns, the same names again and again.
// Breaks if: a call on a name in doubt is made again on what another thread has made of that name since.
#include "relay.h"
#include <semaphore.h>

enum { PAIRS = 3, ROUNDS = 600 };

static int folders[PAIRS];
static sem_t turn[PAIRS][2];

static void hand_on(int pair, int end) { CHECK(sem_post(&turn[pair][end]) == 0); }

static void await(int pair, int end)
{
    while (sem_wait(&turn[pair][!end]) != 0)
        CHECK(errno == EINTR);
}

static void make(int folder, const char *name, int number)
{
    int fd = openat(folder, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && write(fd, &number, sizeof number) == sizeof number && close(fd) == 0);
}

static void holds(int folder, const char *name, int number)
{
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC), found;

    CHECK(fd >= 0 && read(fd, &found, sizeof found) == sizeof found && found == number && close(fd) == 0);
}

static void *first(void *arg)
{
    int pair = (int)guest_num(arg), folder = folders[pair];

    for (int n = 0; n < ROUNDS; n++) {
        make(folder, "a", n);
        CHECK(mkdirat(folder, "d", 0700) == 0);
        hand_on(pair, 0);
        await(pair, 0);
        FAILS(faccessat(folder, "a", F_OK, 0), ENOENT);
        holds(folder, "b", n);
        holds(folder, "c", n);
        CHECK(unlinkat(folder, "c", 0) == 0 && renameat(folder, "b", folder, "a") == 0);
        hand_on(pair, 0);
        await(pair, 0);
    }
    return NULL;
}

static void *second(void *arg)
{
    int pair = (int)guest_num(arg), folder = folders[pair];

    for (int n = 0; n < ROUNDS; n++) {
        await(pair, 1);
        holds(folder, "a", n);
        CHECK(unlinkat(folder, "d", AT_REMOVEDIR) == 0 && renameat(folder, "a", folder, "b") == 0);
        CHECK(linkat(folder, "b", folder, "c", 0) == 0);
        hand_on(pair, 1);
        await(pair, 1);
        FAILS(faccessat(folder, "b", F_OK, 0), ENOENT);
        holds(folder, "a", n);
        CHECK(unlinkat(folder, "a", 0) == 0);
        hand_on(pair, 1);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[2 * PAIRS];
    char name[] = "0";

    guest_scratch();
    for (int i = 0; i < PAIRS; i++) {
        name[0] = (char)('0' + i);
        struct guest_name path = guest_path(name);
        CHECK(mkdir(path.s, 0700) == 0);
        folders[i] = open(path.s, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CHECK(folders[i] >= 0 && sem_init(&turn[i][0], 0, 0) == 0 && sem_init(&turn[i][1], 0, 0) == 0);
    }
    for (int i = 0; i < PAIRS; i++) {
        threads[2 * i] = guest_start(second, guest_ptr(i));
        threads[2 * i + 1] = guest_start(first, guest_ptr(i));
    }
    for (int i = 0; i < 2 * PAIRS; i++)
        guest_join(threads[i]);
    for (int i = 0; i < PAIRS; i++) {
        name[0] = (char)('0' + i);
        CHECK(close(folders[i]) == 0 && rmdir(guest_path(name).s) == 0);
    }
    guest_scratch_end();
    printf("%d pairs, %d rounds\n", PAIRS, ROUNDS);
    return guest_ok();
}
