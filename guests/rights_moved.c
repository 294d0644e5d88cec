// Shows: both ends of a socket or pipe come with messages, and a thread reads packets that another one numbers and writes; files that
//        came so are written, appended to and read.
// Breaks if: nobody knows what a descriptor is that has come so: a read in doubt has lost what it had read, a write is made twice.
#include "guest.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { PACKET = 200000, PACKETS = 400, KINDS = 4, STEP = 4000, RECORD = 1000, RECORDS = 800, TIMES = 6 };

static const char *const names[KINDS] = { "packets", "stream", "tcp", "pipe" };

/* The two ends of a way: what is written to the first comes out of the second. */
static void ends_of(int kind, int ends[2])
{
    if (kind == 2) {
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t len = sizeof at;
        int listener = socket(AF_INET, SOCK_STREAM, 0);

        CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&at, len) == 0 && listen(listener, 1) == 0);
        CHECK(getsockname(listener, (struct sockaddr *)&at, &len) == 0);
        ends[0] = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(ends[0] >= 0 && connect(ends[0], (struct sockaddr *)&at, len) == 0);
        ends[1] = accept(listener, NULL, NULL);
        CHECK(ends[1] >= 0 && close(listener) == 0);
        return;
    }
    if (kind == 3) {
        CHECK(pipe(ends) == 0);
        int reader = ends[0];
        ends[0] = ends[1];
        ends[1] = reader;
        return;
    }
    CHECK(socketpair(AF_UNIX, kind == 0 ? SOCK_SEQPACKET : SOCK_STREAM, 0, ends) == 0);
}

/* Sends a descriptor, and takes what comes of it. */
static int passed(int fd)
{
    int way[2], got = -1;
    char byte = 'x', control[CMSG_SPACE(sizeof got)] = { 0 };
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, way) == 0);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    CHECK(sendmsg(way[0], &message, 0) == 1);
    message.msg_controllen = sizeof control;
    CHECK(recvmsg(way[1], &message, 0) == 1 && CMSG_FIRSTHDR(&message) != NULL);
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
    CHECK(got >= 0 && close(way[0]) == 0 && close(way[1]) == 0);
    return got;
}

/* Numbers a packet, so that each part of it says which one it is of: to be quick, since what is to be met is a read. */
static void number(unsigned char *packet, int n)
{
    for (int at = 0; at < PACKET; at += STEP)
        memcpy(packet + at, &n, sizeof n);
}

static void check(const unsigned char *packet, int n)
{
    for (int at = 0; at < PACKET; at += STEP)
        CHECK(memcmp(packet + at, &n, sizeof n) == 0);
}

static void *writer(void *arg)
{
    int fd = (int)guest_num(arg);
    unsigned char *packet = calloc(1, PACKET);

    CHECK(packet != NULL);
    for (int i = 0; i < PACKETS; i++) {
        number(packet, i);
        guest_write_all(fd, packet, PACKET);
    }
    free(packet);
    CHECK(close(fd) == 0);
    return NULL;
}

/* Writes records to a file by descriptors that have come with a message, and reads them by another one. */
static void file(int appends)
{
    struct guest_name name = guest_path(appends ? "appended" : "written");
    int fd = open(name.s, O_RDWR | O_CREAT | O_EXCL, 0600), record[RECORD] = { 0 }, n = 0;

    CHECK(fd >= 0 && fcntl(fd, F_SETFL, appends ? O_APPEND : 0) == 0 && write(fd, "head", 4) == 4);
    for (int r = 0; r < TIMES; r++) {
        int got = passed(fd);
        for (int i = 0; i < RECORDS; i++, n++) {
            record[0] = n;
            record[RECORD - 1] = ~n;
            CHECK(write(got, record, sizeof record) == sizeof record);
        }
        CHECK(close(got) == 0);
    }
    CHECK(lseek(fd, 4, SEEK_SET) == 4);
    int got = passed(fd);
    for (int i = 0; i < n; i++)
        CHECK(read(got, record, sizeof record) == sizeof record && record[0] == i && record[RECORD - 1] == ~i);
    CHECK(read(got, record, 1) == 0);
    CHECK(close(got) == 0 && close(fd) == 0 && unlink(name.s) == 0);
    printf("%s %d\n", appends ? "appended" : "written", n);
}

int main(void)
{
    unsigned char *packet = malloc(PACKET);

    CHECK(packet != NULL);
    for (int kind = 0; kind < KINDS; kind++) {
        int ends[2];

        ends_of(kind, ends);
        int fd = passed(ends[1]), out = passed(ends[0]);
        pthread_t thread = guest_start(writer, guest_ptr(out));

        CHECK(close(ends[0]) == 0);
        for (int i = 0; i < PACKETS; i++) {
            if (kind == 0)
                CHECK(read(fd, packet, PACKET) == PACKET);
            else
                guest_read_all(fd, packet, PACKET);
            check(packet, i);
        }
        CHECK(read(fd, packet, 1) == 0);
        guest_join(thread);
        CHECK(close(fd) == 0 && close(ends[1]) == 0);
        printf("%s %d\n", names[kind], PACKETS);
    }
    free(packet);
    guest_scratch();
    file(0);
    file(1);
    guest_scratch_end();
    return guest_ok();
}
