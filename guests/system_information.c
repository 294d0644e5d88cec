// Shows: uname, sysinfo, sysconf, gethostname, getpagesize, sched_getaffinity, getcpu: answers kept from round to round.
// Breaks if: what may differ from call to call (load, free memory, CPU) is asked by each copy for itself.
#include "guest.h"
#include <sched.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

enum { ROUNDS = 80 };

int main(void)
{
    struct utsname first, now;
    int ends[2];

    CHECK(uname(&first) == 0 && strcmp(first.sysname, "Linux") == 0 && pipe(ends) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        struct sysinfo info, back;
        char host[HOST_NAME_MAX + 1];
        cpu_set_t cpus;
        unsigned cpu, node;
        CHECK(uname(&now) == 0 && memcmp(&first, &now, sizeof now) == 0);
        memset(&info, 0, sizeof info);
        CHECK(sysinfo(&info) == 0 && info.totalram > 0);
        /* The volatile numbers go out and come back: they must be one and the same in every copy. */
        guest_write_all(ends[1], &info, sizeof info);
        guest_pause_us(300);
        guest_read_all(ends[0], &back, sizeof back);
        CHECK(memcmp(&info, &back, sizeof info) == 0);
        CHECK(sysconf(_SC_PAGESIZE) == getpagesize() && sysconf(_SC_NPROCESSORS_ONLN) >= 1);
        CHECK(gethostname(host, sizeof host) == 0 && strcmp(host, first.nodename) == 0);
        CHECK(sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) >= 1);
        CHECK(getcpu(&cpu, &node) == 0 && CPU_ISSET(cpu, &cpus));
    }
    printf("system %s\n", first.sysname);
    return guest_ok();
}
