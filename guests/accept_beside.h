/* accept_beside.h: a thread waits in accept while another one does something with a connection of the same listener. */
#ifndef UNDERSTUDY_ACCEPT_BESIDE_H
#define UNDERSTUDY_ACCEPT_BESIDE_H

#include "net.h"

/* What a thread does beside an accept: something with a connection of the same listener, and then a client comes. */
struct net_beside {
    void (*act)(int connection);
    int connection, client;
    struct sockaddr_in address;
};

static inline void *net_act_beside(void *arg)
{
    struct net_beside *beside = arg;

    beside->act(beside->connection);
    beside->client = net_connect(&beside->address);
    guest_write_all(beside->client, "second", 6);
    return NULL;
}

/* A thread waits in accept while another one acts. What it gets is the second client's connection, whose number is returned. */
static inline int net_accept_beside(void (*act)(int connection))
{
    struct net_beside beside = { .act = act };
    int listener = net_bound(SOCK_STREAM, &beside.address);
    CHECK(listen(listener, 4) == 0);
    int client = net_connect(&beside.address);
    guest_write_all(client, "first ", 6);
    int first = beside.connection = accept(listener, NULL, NULL);
    CHECK(first >= 0);
    pthread_t thread = guest_start(net_act_beside, &beside);

    int second = accept(listener, NULL, NULL);
    CHECK(second >= 0);
    char word[6];
    struct sockaddr_in peer[2];
    for (int i = 0; i < 2; i++) {
        socklen_t len = sizeof peer[i];
        CHECK(getpeername(i ? second : first, (struct sockaddr *)&peer[i], &len) == 0);
    }
    CHECK(peer[0].sin_port != peer[1].sin_port);
    guest_read_all(first, word, sizeof word);
    CHECK(memcmp(word, "first ", 6) == 0);
    guest_read_all(second, word, sizeof word);
    CHECK(memcmp(word, "second", 6) == 0);
    guest_join(thread);
    CHECK(close(client) == 0 && close(beside.client) == 0 && close(first) == 0 && close(second) == 0 && close(listener) == 0);
    return second;
}

#endif
