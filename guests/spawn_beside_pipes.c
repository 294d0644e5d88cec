// Shows: a pipe and an eventfd by which threads wake each other, and a pipe through which splice relays a stream, while another
// thread starts programs: what they move is exact, whether a started program has kept an end of the pipe or not.
// Breaks if: a child that has executed a file counts as one that may have moved bytes in everything that was open.
// kit: tree
#include "net.h"
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { ROUNDS = 6000, CHILDREN = 40, STREAM = 24 << 20, PIECE = 40000 };

extern char **environ;
static int to_b[2], to_a, done;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *first(void *arg)
{
    uint64_t sum = 0, seen;
    (void)arg;
    for (uint64_t n = 1; n <= ROUNDS; n++) {
        uint64_t mixed = guest_mix(n);
        guest_write_all(to_b[1], &mixed, 1 + n % 8);
        CHECK(read(to_a, &seen, sizeof seen) == sizeof seen);
        CHECK(seen == n);
        sum += seen;
    }
    CHECK(sum == (uint64_t)ROUNDS * (ROUNDS + 1) / 2);
    return NULL;
}

static void *second(void *arg)
{
    (void)arg;
    for (uint64_t n = 1; n <= ROUNDS; n++) {
        uint64_t mixed = guest_mix(n), got = 0;
        guest_read_all(to_b[0], &got, 1 + n % 8);
        CHECK(memcmp(&got, &mixed, 1 + n % 8) == 0);
        CHECK(write(to_a, &n, sizeof n) == sizeof n);
    }
    return NULL;
}

static int in[2], through[2], out[2];

/* A number of the stream by its place: eight bytes each. */
static void *pour(void *arg)
{
    static uint64_t words[PIECE / 8];
    (void)arg;
    for (uint64_t at = 0; at < STREAM;) {
        size_t bytes = STREAM - at < sizeof words ? (size_t)(STREAM - at) : sizeof words;
        for (size_t i = 0; i < bytes / 8; i++)
            words[i] = guest_mix(at / 8 + i);
        guest_write_all(in[0], words, bytes);
        at += bytes;
    }
    CHECK(shutdown(in[0], SHUT_WR) == 0);
    return NULL;
}

static void *relay(void *arg)
{
    (void)arg;
    for (;;) {
        ssize_t have = splice(in[1], NULL, through[1], NULL, 1 << 20, 0);
        CHECK(have >= 0);
        if (have == 0)
            break;
        while (have > 0) {
            ssize_t n = splice(through[0], NULL, out[0], NULL, (size_t)have, 0);
            CHECK(n > 0);
            have -= n;
        }
    }
    CHECK(shutdown(out[0], SHUT_WR) == 0);
    return NULL;
}

static void *drink(void *arg)
{
    static uint64_t words[PIECE / 8];
    (void)arg;
    for (uint64_t at = 0; at < STREAM;) {
        size_t bytes = STREAM - at < sizeof words ? (size_t)(STREAM - at) : sizeof words;
        guest_read_all(out[1], words, bytes);
        for (size_t i = 0; i < bytes / 8; i++)
            CHECK(words[i] == guest_mix(at / 8 + i));
        at += bytes;
    }
    CHECK(read(out[1], words, 1) == 0);
    return NULL;
}

static int is_done(void)
{
    CHECK(pthread_mutex_lock(&lock) == 0);
    int now = done;
    CHECK(pthread_mutex_unlock(&lock) == 0);
    return now;
}

static void *start(void *arg)
{
    char *const args[] = {"sh", "-c", "sleep 0.01; exit 7", NULL};
    (void)arg;
    for (int n = 0; n < CHILDREN && !is_done(); n++) {
        posix_spawn_file_actions_t actions;
        int status;
        pid_t pid;

        CHECK(posix_spawn_file_actions_init(&actions) == 0);
        // The last ones keep an end that they do not use.
        if (n >= CHILDREN / 2)
            CHECK(posix_spawn_file_actions_adddup2(&actions, to_b[1], 9) == 0);
        CHECK(posix_spawn(&pid, "/bin/sh", &actions, NULL, args, environ) == 0);
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
        CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
    }
    return NULL;
}

int main(void)
{
    CHECK(pipe2(to_b, O_CLOEXEC) == 0);
    to_a = eventfd(0, EFD_CLOEXEC);
    CHECK(to_a >= 0);
    CHECK(pipe2(through, O_CLOEXEC) == 0);
    net_pair(in);
    net_pair(out);
    for (int i = 0; i < 2; i++)
        CHECK(fcntl(in[i], F_SETFD, FD_CLOEXEC) == 0 && fcntl(out[i], F_SETFD, FD_CLOEXEC) == 0);
    pthread_t pours = guest_start(pour, NULL), relays = guest_start(relay, NULL), drinks = guest_start(drink, NULL);
    pthread_t starts = guest_start(start, NULL), a = guest_start(first, NULL), b = guest_start(second, NULL);

    guest_join(a);
    guest_join(b);
    guest_join(pours);
    guest_join(relays);
    guest_join(drinks);
    CHECK(pthread_mutex_lock(&lock) == 0);
    done = 1;
    CHECK(pthread_mutex_unlock(&lock) == 0);
    guest_join(starts);
    return guest_ok();
}
