// Shows: a thread waits in accept while another one duplicates a connection of the same listener to numbers of its choice.
// Breaks if: a dup2, dup3 or F_DUPFD that could not say anything any more has made what is taken for the connection that accept
//            waits for; or accept's own is taken for theirs.
#include "net.h"

enum { ROUNDS = 250, NUMBER = 60 };

static struct sockaddr_in address;

static int copy_of(int connection, int round)
{
    switch (round % 3) {
    case 0:
        return dup2(connection, NUMBER);
    case 1:
        return dup3(connection, NUMBER, O_CLOEXEC);
    default:
        return fcntl(connection, F_DUPFD_CLOEXEC, NUMBER);
    }
}

/* A client of its own when it has made its duplicates. */
static void *duplicate(void *arg)
{
    int connection = (int)guest_num(arg);

    for (int r = 0; r < ROUNDS; r++) {
        RETURNS(copy_of(connection, r), NUMBER);
        CHECK((fcntl(NUMBER, F_GETFD) == FD_CLOEXEC) == (r % 3 != 0));
        CHECK(close(NUMBER) == 0);
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
    CHECK(second >= 0 && second < NUMBER);
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
