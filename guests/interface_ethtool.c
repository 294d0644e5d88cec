// Shows: SIOCETHTOOL: what is asked about an interface through a pointer in the request, with answers of several lengths.
// Breaks if: the request costs the standby, or the answer is not in the log.
#include "guest.h"
#include "litter.h"
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { ROUNDS = 60 };

static int ask(int fd, void *structure)
{
    struct ifreq asked;

    litter(&asked, sizeof asked);
    strcpy(asked.ifr_name, "lo");
    asked.ifr_data = (char *)structure;
    return ioctl(fd, SIOCETHTOOL, &asked) == 0 ? 0 : errno;
}

// The value that `command` answers, or the error as a negative number.
static long value(int fd, unsigned command)
{
    struct ethtool_value answer;

    litter(&answer, sizeof answer);
    answer.cmd = command;
    int error = ask(fd, &answer);
    CHECK(answer.cmd == command);
    return error == 0 ? (long)answer.data : -error;
}

int main(void)
{
    static const unsigned commands[] = { ETHTOOL_GLINK, ETHTOOL_GTSO, ETHTOOL_GFLAGS, ETHTOOL_GSG, ETHTOOL_GMSGLVL };
    enum { COMMANDS = sizeof commands / sizeof *commands };
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    long first[COMMANDS + 2];
    uint64_t sum = 0;

    CHECK(fd >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        long now[COMMANDS + 2];
        for (int c = 0; c < COMMANDS; c++)
            now[c] = value(fd, commands[c]);
        struct ethtool_ts_info stamps;
        memset(&stamps, 0x55, sizeof stamps);
        stamps.cmd = ETHTOOL_GET_TS_INFO;
        now[COMMANDS] = -ask(fd, &stamps);
        if (now[COMMANDS] == 0)
            now[COMMANDS] = (long)(guest_digest(&stamps, sizeof stamps) >> 1);
        struct {
            struct ethtool_link_settings head;
            uint32_t masks[3 * 127];
        } link;
        memset(&link, 0, sizeof link);
        link.head.cmd = ETHTOOL_GLINKSETTINGS;
        now[COMMANDS + 1] = -ask(fd, &link);
        if (now[COMMANDS + 1] == 0) {
            CHECK(link.head.link_mode_masks_nwords < 0);
            link.head.link_mode_masks_nwords = (signed char)-link.head.link_mode_masks_nwords;
            CHECK(ask(fd, &link) == 0);
            now[COMMANDS + 1] = (long)(guest_digest(&link, sizeof link) >> 1);
        }
        if (r == 0)
            memcpy(first, now, sizeof now);
        CHECK(memcmp(first, now, sizeof now) == 0);
        sum += (uint64_t)now[0];
        guest_pause_us(500);
    }
    CHECK(sum == ROUNDS && close(fd) == 0);
    return guest_ok();
}
