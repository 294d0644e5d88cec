// Shows: users, groups, hosts, services and protocols looked up by several threads: libc opens and reads its files anew each time.
// Breaks if: what libc keeps between such calls is in another state in a copy, or its files are read at moments that no log orders.
#include "guest.h"
#include <grp.h>
#include <netdb.h>
#include <pwd.h>

enum { THREADS = 3, ROUNDS = 25 };

static void *look(void *arg)
{
    long found = 0;

    for (int r = 0; r < ROUNDS; r++) {
        struct passwd user, *got;
        struct group group, *its;
        struct servent service, *port;
        struct protoent protocol, *number;
        char room[4096];
        if (getpwnam_r("root", &user, room, sizeof room, &got) == 0 && got)
            found += user.pw_uid == 0 && strcmp(user.pw_dir, "/root") == 0;
        if (getpwuid_r(0, &user, room, sizeof room, &got) == 0 && got)
            found += strcmp(user.pw_name, "root") == 0;
        if (getgrgid_r(0, &group, room, sizeof room, &its) == 0 && its)
            found += strcmp(group.gr_name, "root") == 0;
        CHECK(getpwnam_r("no-such-user-here", &user, room, sizeof room, &got) == 0 && !got);
        if (getservbyname_r("http", "tcp", &service, room, sizeof room, &port) == 0 && port)
            found += ntohs((uint16_t)service.s_port) == 80;
        if (getprotobyname_r("udp", &protocol, room, sizeof room, &number) == 0 && number)
            found += protocol.p_proto == 17;
        struct addrinfo want = { .ai_socktype = SOCK_STREAM, .ai_family = AF_INET }, *list;
        if (getaddrinfo("localhost", "9", &want, &list) == 0) {
            found += list->ai_addrlen == 16;
            freeaddrinfo(list);
        }
        guest_pause_us(1500);
    }
    return guest_ptr(found + guest_num(arg) * 0);
}

int main(void)
{
    pthread_t threads[THREADS];
    long found = 0;

    /* The first time is behind every door: one thread at a time. */
    look(guest_ptr(0));
    for (long i = 0; i < THREADS; i++)
        threads[i] = guest_start(look, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        found += guest_num(guest_join(threads[i]));
    CHECK(found % (THREADS * ROUNDS) == 0);
    printf("found %ld\n", found / THREADS / ROUNDS);
    return guest_ok();
}
