// Shows: SIOCGIFCONF: the list of network interfaces, and what is asked about each of them by its name, or by its number.
// Breaks if: the length or the list itself is not in the log: the standby asks about other names; or what lies behind a name counts.
#include "guest.h"
#include "litter.h"
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { ROUNDS = 60 };

int main(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), loopbacks = 0, length = -1;

    CHECK(fd >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        struct ifreq list[32];
        struct ifconf conf = { .ifc_len = sizeof list };
        conf.ifc_req = list;
        memset(list, 'x', sizeof list);
        CHECK(ioctl(fd, SIOCGIFCONF, &conf) == 0);
        CHECK(length < 0 || length == conf.ifc_len);
        length = conf.ifc_len;
        for (int i = 0; i < conf.ifc_len / (int)sizeof *list; i++) {
            struct ifreq asked;
            litter(&asked, sizeof asked);
            strcpy(asked.ifr_name, list[i].ifr_name);
            CHECK(ioctl(fd, SIOCGIFFLAGS, &asked) == 0);
            loopbacks += (asked.ifr_flags & IFF_LOOPBACK) != 0;
            CHECK(ioctl(fd, SIOCGIFINDEX, &asked) == 0);
            int index = asked.ifr_ifindex;
            litter(&asked, sizeof asked);
            asked.ifr_ifindex = index;
            CHECK(ioctl(fd, SIOCGIFNAME, &asked) == 0 && strcmp(asked.ifr_name, list[i].ifr_name) == 0);
        }
        guest_pause_us(500);
    }
    CHECK(close(fd) == 0);
    printf("loopback %s\n", loopbacks % ROUNDS == 0 ? "every time" : "now and then");
    return guest_ok();
}
