// Shows: calls that this kernel, or an older one, does not have; a name's length asked for without the name.
// Breaks if: such a call costs the program its standby, or the length is not what the kernel has written.
#include "guest.h"
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

enum { ROUNDS = 20 };

int main(void)
{
    unsigned long context = 0;

    for (int r = 0; r < ROUNDS; r++) {
        FAILS(syscall(4000 + r, 1, 2, 3), ENOSYS);
        FAILS(syscall(-7), ENOSYS);
        long rc = syscall(SYS_io_setup, 4, &context);
        CHECK(rc == 0 || (rc == -1 && errno == ENOSYS));
        if (rc == 0)
            CHECK(syscall(SYS_io_destroy, context) == 0);
        context = 0;
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        socklen_t none = 0, some = sizeof(struct sockaddr_un);
        struct sockaddr_un name;
        CHECK(fd >= 0 && getsockname(fd, NULL, &none) == 0);
        CHECK(getsockname(fd, (struct sockaddr *)&name, &some) == 0);
        printf("%d %d %d\n", r, (int)none, (int)some);
        CHECK(close(fd) == 0);
        guest_pause_us(3000);
    }
    return guest_ok();
}
