// Shows: ids, capabilities and other attributes that a thread has asked the kernel for itself are its own: files', real and
//        effective ids, groups, capabilities of all kinds, securebits, no_new_privs, timer slack, priority of input and output.
// Breaks if: a thread of a copy has those of another one, or the number by which a thread names itself to the kernel is a dead
//            thread's.
#include "guest.h"
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { KINDS = 9, ROUNDS = 60 };
enum { IDLE = 3 << 13 };

struct rights {
    uid_t users[4];
    gid_t groups[4];
    gid_t others[16];
    struct __user_cap_data_struct caps[2];
    long count, secure, no_new, slack, io, ambient, bounding;
};

static int is_root;

static struct rights own_rights(void)
{
    struct rights r;
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, (int)syscall(SYS_gettid) };

    memset(&r, 0, sizeof r);
    CHECK(getresuid(&r.users[0], &r.users[1], &r.users[2]) == 0);
    CHECK(getresgid(&r.groups[0], &r.groups[1], &r.groups[2]) == 0);
    r.users[3] = (uid_t)syscall(SYS_setfsuid, -1);
    r.groups[3] = (gid_t)syscall(SYS_setfsgid, -1);
    r.count = getgroups(16, r.others);
    CHECK(syscall(SYS_capget, &head, r.caps) == 0);
    r.secure = prctl(PR_GET_SECUREBITS);
    r.no_new = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
    r.slack = prctl(PR_GET_TIMERSLACK);
    r.io = syscall(SYS_ioprio_get, 1, 0);
    r.ambient = prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_NET_BIND_SERVICE, 0, 0);
    r.bounding = prctl(PR_CAPBSET_READ, CAP_SYS_TIME);
    return r;
}

static void change_caps(unsigned keep, unsigned inheritable)
{
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct caps[2];

    CHECK(syscall(SYS_capget, &head, caps) == 0);
    caps[0].effective &= keep;
    caps[0].permitted &= keep;
    caps[0].inheritable = inheritable;
    /* By its number, as a thread may as well. */
    head.pid = (int)syscall(SYS_gettid);
    CHECK(syscall(SYS_capset, &head, caps) == 0);
}

static void change(long kind)
{
    gid_t others[3] = { 11, 12, 13 };

    CHECK(prctl(PR_SET_TIMERSLACK, 60000 + 1000 * kind) == 0);
    if (kind % 2)
        CHECK(syscall(SYS_ioprio_set, 1, 0, IDLE) == 0);
    if (kind == 8)
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (!is_root)
        return;
    switch (kind) {
    case 0:
        CHECK(syscall(SYS_setfsgid, 4321) == 0 && syscall(SYS_setfsuid, 1234) == 0);
        break;
    case 1:
        CHECK(syscall(SYS_setresgid, 21, 22, 23) == 0 && syscall(SYS_setresuid, 31, 32, 33) == 0);
        break;
    case 2:
        CHECK(syscall(SYS_setgroups, 3, others) == 0);
        break;
    case 3:
        change_caps(~(1u << CAP_NET_ADMIN | 1u << CAP_SYS_CHROOT), 0);
        break;
    case 4:
        CHECK(prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED) == 0);
        break;
    case 5:
        change_caps(~0u, 1u << CAP_NET_BIND_SERVICE);
        CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_BIND_SERVICE, 0, 0) == 0);
        break;
    case 6:
        CHECK(prctl(PR_CAPBSET_DROP, CAP_SYS_TIME) == 0);
        break;
    case 7:
        CHECK(prctl(PR_SET_KEEPCAPS, 1) == 0 && syscall(SYS_setresuid, 41, 42, 41) == 0);
        change_caps(1u << CAP_NET_RAW | 1u << CAP_CHOWN, 0);
        break;
    default:
        break;
    }
}

static void look(struct rights expected)
{
    for (int r = 0; r < ROUNDS; r++) {
        struct rights now = own_rights();
        CHECK(memcmp(&now, &expected, sizeof now) == 0);
        guest_pause_us(2000);
    }
}

static void *run(void *arg)
{
    change(guest_num(arg));
    look(own_rights());
    return arg;
}

int main(void)
{
    pthread_t threads[KINDS];
    struct rights before = own_rights();

    is_root = geteuid() == 0;
    for (long k = 0; k < KINDS; k++)
        threads[k] = guest_start(run, guest_ptr(k));
    look(before);
    for (int k = 0; k < KINDS; k++)
        guest_join(threads[k]);
    return guest_ok();
}
