// Shows: a child that asks, as soon as it is made, for something that a standby cannot have (kernel aio); and relies on the answer.
// Breaks if: the child gets it in its first moments, before it has a standby, and is refused all further calls later.
// kit: tree
#include "guest.h"
#include <linux/aio_abi.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { CHILDREN = 6, ROUNDS = 20, BYTES = 512 };

/* A read by kernel aio, natively; where there is none, none at all. */
static int child(int fd)
{
    aio_context_t context = 0;
    char buffer[BYTES];
    long made = syscall(SYS_io_setup, 4, &context);

    CHECK(made == 0 || errno == ENOSYS);
    for (int r = 0; r < ROUNDS; r++) {
        struct iocb block = { .aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = (uint32_t)fd, .aio_nbytes = BYTES };
        struct iocb *blocks[] = { &block };
        struct io_event event;

        block.aio_buf = (uintptr_t)buffer;
        RETURNS(syscall(SYS_io_submit, context, 1, blocks), made == 0 ? 1 : -1);
        if (made != 0)
            CHECK(errno == ENOSYS && pread(fd, buffer, BYTES, 0) == BYTES);
        else
            CHECK(syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1 && event.res == BYTES);
        CHECK(buffer[0] == 'a' && buffer[BYTES - 1] == 'a');
        guest_pause_us(2000);
    }
    return 7;
}

int main(void)
{
    char bytes[BYTES];

    memset(bytes, 'a', sizeof bytes);
    guest_scratch();
    int fd = open(guest_path("bytes").s, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, bytes, BYTES) == BYTES && unlink(guest_path("bytes").s) == 0);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t made = fork();

        CHECK(made >= 0);
        if (made == 0)
            _exit(child(fd));
        guest_pause_us(10000);
    }
    for (int i = 0; i < CHILDREN; i++) {
        int status;

        while (wait(&status) < 0)
            CHECK(errno == EINTR);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    guest_scratch_end();
    return guest_ok();
}
