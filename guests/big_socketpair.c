// Shows: 16 MiB through a socketpair in both directions at once, whole writes and whole reads.
// Breaks if: a long transfer is settled wrongly at a failover: a piece twice, or a hole.
#include "guest.h"
#include <sys/socket.h>

enum { SIZE = 16 << 20 };

static int pair[2];

static void *sender(void *arg)
{
    int fd = pair[guest_num(arg)];
    unsigned char block[256 * 1024];

    for (uint64_t at = 0; at < SIZE; at += sizeof block) {
        for (uint64_t i = 0; i < sizeof block; i += 8) {
            uint64_t x = guest_mix(at + i + (uint64_t)guest_num(arg));
            memcpy(block + i, &x, 8);
        }
        guest_write_all(fd, block, sizeof block);
    }
    return NULL;
}

static void *receiver(void *arg)
{
    int fd = pair[guest_num(arg)];
    unsigned char *all = (unsigned char *)malloc(SIZE);
    uint64_t sum = 0;

    CHECK(all != NULL);
    CHECK(recv(fd, all, SIZE, MSG_WAITALL) == SIZE);
    for (uint64_t i = 0; i < SIZE; i += 8) {
        uint64_t x = guest_mix(i + (uint64_t)(1 - guest_num(arg)));
        CHECK(memcmp(all + i, &x, 8) == 0);
        sum += x;
    }
    free(all);
    return guest_ptr((long)sum);
}

int main(void)
{
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pthread_t s0 = guest_start(sender, guest_ptr(0)), s1 = guest_start(sender, guest_ptr(1));
    pthread_t r0 = guest_start(receiver, guest_ptr(0)), r1 = guest_start(receiver, guest_ptr(1));
    guest_join(s0);
    guest_join(s1);
    printf("sums %016lx", guest_num(guest_join(r0)));
    printf(" %016lx\n", guest_num(guest_join(r1)));
    return guest_ok();
}
