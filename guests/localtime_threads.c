// Shows: localtime_r, mktime and strftime from many threads with a time zone that has summer time.
// Breaks if: the lazy load of the zone runs in another thread of the standby than in the primary.
#include "guest.h"

enum { THREADS = 4, ROUNDS = 40, EACH = 30 };

static void *run(void *arg)
{
    uint64_t digest = 0;

    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < EACH; i++) {
            time_t when = 1700000000 + (time_t)(r * EACH + i) * 86400 / 3 + guest_num(arg);
            struct tm parts;
            char text[80];
            CHECK(localtime_r(&when, &parts) == &parts);
            size_t n = strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %Z %j %U", &parts);
            CHECK(n > 20);
            CHECK(strstr(text, parts.tm_isdst ? "CEST" : "CET") != NULL);
            CHECK(mktime(&parts) == when);
            digest = guest_mix(digest ^ guest_digest(text, n));
        }
        guest_pause_us(300);
    }
    return guest_ptr((long)(digest >> 4));
}

int main(void)
{
    pthread_t t[THREADS];

    CHECK(setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1) == 0);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        printf("thread %d: %015lx\n", i, guest_num(guest_join(t[i])));
    return guest_ok();
}
