// Shows: a thread waits in accept while another one duplicates, and closes, a connection of the same listener.
// Breaks if: a duplicate that its call could not say anything of any more is taken for the connection that accept
//            waits for: its local address is that of the listener, as an accepted connection's is.
#include "net.h"

enum { ROUNDS = 250 };

static struct sockaddr_in address;

/* A client of its own when it has made its duplicates. */
static void *duplicate(void *arg)
{
    int connection = (int)guest_num(arg);

    for (int r = 0; r < ROUNDS; r++) {
        int copy = dup(connection);
        CHECK(copy > connection);
        CHECK(close(copy) == 0);
        guest_pause_us(200);
    }
    int client = net_connect(&address);
    guest_write_all(client, "second", 6);
    return guest_ptr(client);
}

int main(void)
{
    int listener = net_bound(SOCK_STREAM, &address);
    CHECK(listen(listener, 4) == 0);
    int client = net_connect(&address);
    guest_write_all(client, "first ", 6);
    int first = accept(listener, NULL, NULL);
    CHECK(first >= 0);
    pthread_t thread = guest_start(duplicate, guest_ptr(first));

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
    int other = (int)guest_num(guest_join(thread));
    CHECK(close(client) == 0 && close(other) == 0 && close(first) == 0 && close(second) == 0 && close(listener) == 0);
    printf("duplicates %d\n", ROUNDS);
    return guest_ok();
}
