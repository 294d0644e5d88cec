/* guest.h: what every guest shares: checks, thread start, time, scratch files.
 *
 * A guest is a small program that shows one behaviour, checks itself, and ends its
 * stdout with "ok". It knows nothing of Understudy and must pass on plain Linux.
 * Include this header first: it selects the GNU interfaces.
 */
#ifndef UNDERSTUDY_GUEST_H
#define UNDERSTUDY_GUEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* A failed check speaks with one write and _exit: no stdio lock, no atexit handler, so that
 * it also works inside a signal handler or while another thread holds stderr. */
static inline void guest_fail(const char *file, int line, const char *what, int err)
{
    char text[512];
    int n = snprintf(text, sizeof text, "%s:%d: check failed: %s (errno %d)\n", file, line, what, err);

    if (n > (int)sizeof text)
        n = sizeof text;
    if (write(2, text, (size_t)n) < 0)
        _exit(1);
    _exit(1);
}

/* CHECK(condition): the guest ends with status 1 unless it holds. */
#define CHECK(cond) \
    do { \
        if (!(cond)) \
            guest_fail(__FILE__, __LINE__, #cond, errno); \
    } while (0)

/* ZERO(call): for the pthread family, which returns the error number. */
#define ZERO(call) \
    do { \
        int guest_rc_ = (call); \
        if (guest_rc_ != 0) \
            guest_fail(__FILE__, __LINE__, #call, guest_rc_); \
    } while (0)

/* RETURNS(call, value): the call must return exactly this value. */
#define RETURNS(call, value) \
    do { \
        long guest_rc_ = (long)(call); \
        if (guest_rc_ != (long)(value)) \
            guest_fail(__FILE__, __LINE__, #call " == " #value, (int)guest_rc_); \
    } while (0)

/* FAILS(call, error): the call must return -1 with this errno. */
#define FAILS(call, error) \
    do { \
        errno = 0; \
        long guest_rc_ = (long)(call); \
        if (guest_rc_ != -1 || errno != (error)) \
            guest_fail(__FILE__, __LINE__, #call " fails with " #error, errno); \
    } while (0)

static inline pthread_t guest_start(void *(*fn)(void *), void *arg)
{
    pthread_t thread;

    ZERO(pthread_create(&thread, NULL, fn, arg));
    return thread;
}

static inline void *guest_join(pthread_t thread)
{
    void *result = NULL;

    ZERO(pthread_join(thread, &result));
    return result;
}

/* Small integers travel through thread arguments and results as pointers. */
static inline void *guest_ptr(long n) { return (void *)(intptr_t)n; }
static inline long guest_num(const void *p) { return (long)(intptr_t)p; }

/* So many threads of one function, each with its number, from their beginning to their end. */
static inline void guest_run(void *(*fn)(void *), int count)
{
    pthread_t threads[count];

    for (int t = 0; t < count; t++)
        threads[t] = guest_start(fn, guest_ptr(t));
    for (int t = 0; t < count; t++)
        guest_join(threads[t]);
}

/* A short pause between rounds spreads a guest out in time, so that a kill at a random
 * moment lands inside its work and not behind it. */
static inline void guest_pause_us(long us)
{
    struct timespec t = { us / 1000000, us % 1000000 * 1000 };

    while (nanosleep(&t, &t) != 0)
        CHECK(errno == EINTR);
}

static inline int64_t guest_now_ns(clockid_t clock)
{
    struct timespec t;

    CHECK(clock_gettime(clock, &t) == 0);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* An absolute time on `clock`, `us` microseconds from now (negative: in the past). */
static inline struct timespec guest_deadline(clockid_t clock, long us)
{
    int64_t ns = guest_now_ns(clock) + (int64_t)us * 1000;
    struct timespec t = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

    return t;
}

/* One step of a good 64-bit mixer: seeds, fill patterns and honest work for the CPU. */
static inline uint64_t guest_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t guest_work(uint64_t x, int steps)
{
    while (steps-- > 0)
        x = guest_mix(x);
    return x;
}

static inline void guest_fill(unsigned char *p, size_t len, uint64_t seed)
{
    for (size_t i = 0; i < len; i++)
        p[i] = (unsigned char)(guest_mix(seed + i / 64) >> (i % 8 * 8));
}

/* FNV-1a: for printing what a buffer held without printing the buffer. */
static inline uint64_t guest_digest(const void *data, size_t len)
{
    const unsigned char *p = (const unsigned char *)data;
    uint64_t h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

/* Whole transfers, where a short count is legal and not the point of the guest. */
static inline void guest_write_all(int fd, const void *data, size_t len)
{
    const char *p = (const char *)data;

    while (len > 0) {
        ssize_t n = write(fd, p, len);
        CHECK(n > 0);
        p += n;
        len -= (size_t)n;
    }
}

static inline void guest_read_all(int fd, void *data, size_t len)
{
    char *p = (char *)data;

    while (len > 0) {
        ssize_t n = read(fd, p, len);
        CHECK(n > 0);
        p += n;
        len -= (size_t)n;
    }
}

/* A private folder below $TMPDIR. guest_path names a file in it; guest_scratch_end removes
 * the folder and so checks that the guest left no file behind. */
static char guest_scratch_dir[256];

static inline void guest_scratch(void)
{
    const char *base = getenv("TMPDIR");
    int n = snprintf(guest_scratch_dir, sizeof guest_scratch_dir, "%s/guest-XXXXXX", base ? base : "/tmp");

    CHECK(n > 0 && n < (int)sizeof guest_scratch_dir);
    CHECK(mkdtemp(guest_scratch_dir) != NULL);
}

struct guest_name {
    char s[PATH_MAX];
};

static inline struct guest_name guest_path(const char *file)
{
    struct guest_name name;
    int n = snprintf(name.s, sizeof name.s, "%s/%s", guest_scratch_dir, file);

    CHECK(n > 0 && n < (int)sizeof name.s);
    return name;
}

static inline void guest_scratch_end(void)
{
    CHECK(rmdir(guest_scratch_dir) == 0);
}

/* The last line of every guest; the flush shows a failed stdout here and not in exit(). */
static inline int guest_ok(void)
{
    CHECK(puts("ok") >= 0);
    CHECK(fflush(stdout) == 0);
    return 0;
}

#endif
