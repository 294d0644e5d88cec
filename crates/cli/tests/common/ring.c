/* Maps the ring of a packet socket, as programs that listen to a network do, and waits. */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void)
{
    const struct tpacket_req ring = { .tp_block_size = 32768, .tp_block_nr = 4, .tp_frame_size = 2048, .tp_frame_nr = 64 };
    int socket_of_packets = socket(AF_PACKET, SOCK_RAW, htons(0x88b5));

    if (setsockopt(socket_of_packets, SOL_PACKET, PACKET_RX_RING, &ring, sizeof ring)) {
        puts("none\nready");
        return 0;
    }
    volatile char *frames = mmap(NULL, 32768 * 4, PROT_READ | PROT_WRITE, MAP_SHARED, socket_of_packets, 0);
    if (frames == MAP_FAILED)
        return 1;
    puts("ready");
    fflush(stdout);
    for (;;) {
        usleep(10000);
        if (frames[0])
            return 2;
    }
}
