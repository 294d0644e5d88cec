// Shows: calls on names and objects that do something else the second time: exclusive creation, exchange, attributes.
// Breaks if: such a call is in doubt and is made again without a look at what it had done already.
#include "guest.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/xattr.h>

enum { ROUNDS = 100 };

static struct guest_name a, b;

static void exclusive(void)
{
    int fd = open(a.s, O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0 && write(fd, "a", 1) == 1 && close(fd) == 0);
    FAILS(open(a.s, O_WRONLY | O_CREAT | O_EXCL, 0600), EEXIST);
    fd = open(b.s, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, "bb", 2) == 2 && close(fd) == 0);
}

static void exchange(void)
{
    struct stat s;

    CHECK(renameat2(AT_FDCWD, a.s, AT_FDCWD, b.s, RENAME_EXCHANGE) == 0);
    CHECK(stat(a.s, &s) == 0 && s.st_size == 2);
    CHECK(stat(b.s, &s) == 0 && s.st_size == 1);
    FAILS(renameat2(AT_FDCWD, a.s, AT_FDCWD, b.s, RENAME_NOREPLACE), EEXIST);
}

static void attributes(void)
{
    char value[8];

    /* Not every file system has them. */
    if (setxattr(a.s, "user.guest", "x", 1, XATTR_CREATE) != 0) {
        CHECK(errno == EOPNOTSUPP);
        return;
    }
    FAILS(setxattr(a.s, "user.guest", "y", 1, XATTR_CREATE), EEXIST);
    CHECK(getxattr(a.s, "user.guest", value, sizeof value) == 1 && value[0] == 'x');
    CHECK(removexattr(a.s, "user.guest") == 0);
    FAILS(removexattr(a.s, "user.guest"), ENODATA);
}

static void objects(int r)
{
    key_t key = ftok(a.s, 1 + r % 100);
    int queue = msgget(key, IPC_CREAT | IPC_EXCL | 0600), set = semget(key, 1, IPC_CREAT | IPC_EXCL | 0600);

    CHECK(queue >= 0 && set >= 0);
    FAILS(msgget(key, IPC_CREAT | IPC_EXCL | 0600), EEXIST);
    CHECK(msgctl(queue, IPC_RMID, NULL) == 0 && semctl(set, 0, IPC_RMID) == 0);
    FAILS(msgget(key, 0600), ENOENT);
}

int main(void)
{
    guest_scratch();
    a = guest_path("a");
    b = guest_path("b");
    for (int r = 0; r < ROUNDS; r++) {
        exclusive();
        exchange();
        attributes();
        objects(r);
        CHECK(unlink(a.s) == 0 && unlink(b.s) == 0);
        FAILS(unlink(a.s), ENOENT);
        guest_pause_us(100);
    }
    guest_scratch_end();
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
