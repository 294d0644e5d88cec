// Shows: getaddrinfo and getnameinfo with numeric addresses from many threads; inet_pton and inet_ntop.
// Breaks if: the resolver's lazy start (its configuration files) happens at another place in the standby.
#include "guest.h"
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

enum { THREADS = 3, ROUNDS = 60 };

static void *run(void *arg)
{
    long ports = 0;

    for (int r = 0; r < ROUNDS; r++) {
        struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM }, *list;
        char host[64], port[16], want[64], service[16];
        snprintf(service, sizeof service, "%d", 1000 + r);
        snprintf(want, sizeof want, r % 2 ? "10.%ld.0.%d" : "fd00::%ld:%x", guest_num(arg) + 1, r + 1);
        CHECK(getaddrinfo(want, service, &hints, &list) == 0);
        CHECK(list->ai_family == (r % 2 ? AF_INET : AF_INET6));
        CHECK(getnameinfo(list->ai_addr, list->ai_addrlen, host, sizeof host, port, sizeof port,
                          NI_NUMERICHOST | NI_NUMERICSERV) == 0);
        CHECK(strcmp(host, want) == 0 && strcmp(port, service) == 0);
        ports += strtol(port, NULL, 10);
        freeaddrinfo(list);
        CHECK(getaddrinfo("no.number", NULL, &hints, &list) == EAI_NONAME);
        guest_pause_us(300);
    }
    return guest_ptr(ports);
}

int main(void)
{
    pthread_t t[THREADS];
    long ports = 0;

    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        ports += guest_num(guest_join(t[i]));
    printf("ports %ld\n", ports);
    return guest_ok();
}
