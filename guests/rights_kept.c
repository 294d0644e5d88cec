// Shows: what a process has given up stays given up, and what it has kept it has: capabilities, the bounding set, no new privileges.
// Breaks if: whoever makes the process again (a checkpoint that goes on) gives it its supervisor's rights.
#include "guest.h"
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ROUNDS = 120, NOBODY = 65534 };

struct sets {
    struct __user_cap_data_struct half[2];
};

static struct sets sets(void)
{
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct sets got;

    CHECK(syscall(SYS_capget, &head, got.half) == 0);
    return got;
}

static void set_sets(const struct sets *to)
{
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };

    CHECK(syscall(SYS_capset, &head, to->half) == 0);
}

static void stays(const struct sets *as, int is_bound, unsigned user)
{
    for (int r = 0; r < ROUNDS; r++) {
        struct sets now = sets();
        CHECK(memcmp(&now, as, sizeof now) == 0);
        CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
        CHECK(!is_bound || prctl(PR_CAPBSET_READ, CAP_SYS_TIME, 0, 0, 0) == 0);
        CHECK(getuid() == user);
        guest_pause_us(500);
    }
}

/* As a server that answers at a low port and is nobody. */
static void nobody(void)
{
    struct sets kept = { 0 };

    CHECK(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
    kept.half[0].effective = kept.half[0].permitted = 1u << CAP_NET_BIND_SERVICE;
    set_sets(&kept);
    stays(&kept, 1, NOBODY);
    _exit(0);
}

int main(void)
{
    int is_root = geteuid() == 0 && prctl(PR_CAPBSET_DROP, CAP_SYS_TIME, 0, 0, 0) == 0, status;

    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    struct sets less = sets();
    less.half[0].effective &= ~(1u << CAP_SYS_TIME | 1u << CAP_SYS_NICE);
    less.half[0].permitted &= ~(1u << CAP_SYS_TIME);
    less.half[0].inheritable = 0;
    set_sets(&less);
    pid_t child = is_root ? fork() : 0;
    if (is_root && child == 0)
        nobody();
    stays(&less, is_root, getuid());
    CHECK(!is_root || (waitpid(child, &status, 0) == child && status == 0));
    printf("kept\n");
    return guest_ok();
}
