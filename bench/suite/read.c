/* read(2) of --bytes from --path (/dev/zero: the cheapest source there is, so the share of the copying is the
 * largest; or a file in the page cache, which is rewound before each batch). */
#include "bench.h"

#include <fcntl.h>
#include <unistd.h>

static int fd;
static unsigned char *buffer;

static void rewind_file(void)
{
    /* A character device answers 0 or ESPIPE; neither matters. */
    lseek(fd, 0, SEEK_SET);
}

static void batch(long ops)
{
    uint64_t sum = 0;
    for (long i = 0; i < ops; i++) {
        ssize_t got = read(fd, buffer, (size_t)options.bytes);
        if (got != options.bytes)
            die("read");
        sum += buffer[0] + buffer[got - 1] + (uint64_t)got;
    }
    work(sum);
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    fd = open(options.path ? options.path : "/dev/zero", O_RDONLY);
    buffer = malloc((size_t)options.bytes);
    if (fd < 0 || !buffer)
        die("open");
    memset(buffer, 1, (size_t)options.bytes);
    become_multithreaded();
    long ops = 400000 / (options.bytes + 96); /* 400 KB of log */
    measure("read", ops, rewind_file, batch);
    end_second_thread();
    return 0;
}
