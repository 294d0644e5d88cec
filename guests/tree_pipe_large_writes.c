// Shows: large writes to a pipe, and to a named one, that another process reads come there whole and once, larger ones than the pipe holds as well; and what
// a write to a full pipe, to one without a reader, and to the end for reading says.
// Breaks if: a write that the primary was killed in is taken for done whole, or for not done, where the kernel has taken a part.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { BYTES = 12 << 20, LARGEST = 200000 };

static unsigned char out[LARGEST];

static unsigned char at(long place)
{
    return (unsigned char)(place * 7 + place / 251 + place / 65536);
}

static ssize_t take(int from, unsigned char *in, long len, long round)
{
    struct iovec parts[2] = { { in, (size_t)len / 5 }, { in + len / 5, (size_t)(len - len / 5) } };

    return round % 3 ? read(from, in, (size_t)len) : readv(from, parts, 2);
}

static void reader(int from)
{
    static unsigned char in[100000];
    long place = 0, round = 0;
    ssize_t got;

    while ((got = take(from, in, 1 + place * 31 % (long)sizeof in, round++)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        CHECK(got > 0);
        for (long i = 0; i < got; i++, place++)
            if (in[i] != at(place)) {
                for (long by = -200000; by <= 200000; by++) {
                    long same = 0;
                    while (same < got - i && in[i + same] == at(place + same + by))
                        same++;
                    if (by != 0 && same == got - i)
                        fprintf(stderr, "at %ld what belongs %ld behind it\n", place, by);
                }
                CHECK(in[i] == at(place));
            }
        if (place / 300000 != (place - got) / 300000)
            guest_pause_us(300);
    }
    if (place != BYTES)
        fprintf(stderr, "%ld bytes\n", place);
    CHECK(place == BYTES);
    _exit(3);
}

static void errors(int to)
{
    int line[2];
    static unsigned char fill[LARGEST];

    CHECK(pipe(line) == 0 && fcntl(line[1], F_SETFL, O_NONBLOCK) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        CHECK(read(to, &byte, 1) == -1 && errno == EBADF);
        _exit(0);
    }
    CHECK(write(line[0], fill, 1) == -1 && errno == EBADF);
    CHECK(write(line[1], fill, sizeof fill) == 65536);
    CHECK(write(line[1], fill, 1) == -1 && errno == EAGAIN);
    CHECK(write(line[1], fill, sizeof fill) == -1 && errno == EAGAIN);
    CHECK(read(line[0], fill, 10000) == 10000);
    CHECK(write(line[1], fill, sizeof fill) == 8192);
    CHECK(waitpid(child, NULL, 0) == child);
    close(line[0]);
    CHECK(write(line[1], fill, 100) == -1 && errno == EPIPE);
    CHECK(write(line[1], fill, sizeof fill) == -1 && errno == EPIPE);
    close(line[1]);
}

/* The ends of a pipe, or of a named one, in parent and child. */
static int end_of(const char *path, int *line, int which)
{
    if (!path) {
        close(line[!which]);
        return line[which];
    }
    int fd = open(path, which ? O_WRONLY : O_RDONLY);
    CHECK(fd >= 0);
    return fd;
}

static void transfer(const char *path)
{
    int line[2];
    long place = 0;

    CHECK(path ? mkfifo(path, 0600) == 0 : pipe(line) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        reader(end_of(path, line, 0));
    int to = end_of(path, line, 1);
    for (long round = 0; place < BYTES; round++) {
        long len = 1 + round * 40009 % LARGEST;
        if (len > BYTES - place)
            len = BYTES - place;
        for (long i = 0; i < len; i++)
            out[i] = at(place + i);
        struct iovec parts[2] = { { out, (size_t)len / 3 }, { out + len / 3, (size_t)(len - len / 3) } };
        CHECK((round % 2 ? write(to, out, (size_t)len) : writev(to, parts, 2)) == len);
        place += len;
    }
    if (!path)
        errors(to);
    close(to);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    guest_scratch();
    transfer(NULL);
    struct guest_name named = guest_path("line");
    transfer(named.s);
    CHECK(unlink(named.s) == 0);
    guest_scratch_end();
    return guest_ok();
}
