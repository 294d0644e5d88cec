// Shows: quotactl: what is asked about quotas, which most file systems do not keep.
// Breaks if: the question costs the standby, or has another answer in it.
#include "guest.h"
#include <sys/quota.h>

enum { ROUNDS = 120 };

static long asked(int command, const char *device, void *answer)
{
    long rc = quotactl(QCMD(command, USRQUOTA), device, (int)getuid(), (caddr_t)answer);
    return rc == 0 ? 0 : errno;
}

int main(void)
{
    long first[4];

    for (int r = 0; r < ROUNDS; r++) {
        struct dqblk block;
        struct dqinfo info;
        unsigned format = 7;
        memset(&block, 0x55, sizeof block);
        memset(&info, 0x55, sizeof info);
        long now[4] = { asked(Q_GETQUOTA, "/dev/null", &block), asked(Q_GETINFO, "/nowhere", &info),
                        asked(Q_GETFMT, "/dev/null", &format), asked(Q_GETQUOTA, "/dev/zero", NULL) };
        if (r == 0)
            memcpy(first, now, sizeof now);
        CHECK(memcmp(first, now, sizeof now) == 0);
        CHECK(now[1] != 0 && now[3] != 0);
        guest_pause_us(300);
    }
    return guest_ok();
}
