/* write(2) of --bytes to --path (/dev/null by default: the kernel's part is as small as it gets). */
#include "bench.h"

#include <fcntl.h>
#include <unistd.h>

static int fd;
static unsigned char *buffer;

static void batch(long ops)
{
    uint64_t sum = 0;
    for (long i = 0; i < ops; i++) {
        buffer[0] = (unsigned char)i;
        ssize_t put = write(fd, buffer, (size_t)options.bytes);
        if (put != options.bytes)
            die("write");
        sum += (uint64_t)put;
    }
    work(sum);
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    fd = open(options.path ? options.path : "/dev/null", O_WRONLY);
    buffer = malloc((size_t)options.bytes);
    if (fd < 0 || !buffer)
        die("open");
    for (long i = 0; i < options.bytes; i++)
        buffer[i] = (unsigned char)(i * 7);
    become_multithreaded();
    measure("write", 4000, NULL, batch); /* 256 KB of log: the bytes themselves are not logged */
    end_second_thread();
    return 0;
}
