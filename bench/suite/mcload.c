/* Load for memcached: mcload PORT CONNECTIONS REQUESTS. Each connection has one request under way; of ten,
 * nine are gets of a key that was set before, one sets it again. Every answer is checked byte by byte. */
#include "net.h"

enum { KEYS = 4096, VALUE = 100, CONNECTIONS_MAX = 256, ANSWER_MAX = 512 };

struct connection {
    int fd;
    uint64_t seed;
    char expected[ANSWER_MAX];
    size_t expected_len;
    size_t seen;
    uint64_t asked_ns;
};

static struct connection connections[CONNECTIONS_MAX];
static uint64_t hash = 0xcbf29ce484222325u, longest_ns, sets, gets;

static void value_of(unsigned key, char *value)
{
    for (int i = 0; i < VALUE; i++)
        value[i] = (char)('a' + (key * 31 + (unsigned)i * 7) % 26);
}

/* Every request is counted by what it is, so that the hash is the same in each run of the same size. */
static void ask(struct connection *c, unsigned key, int set)
{
    char request[ANSWER_MAX], value[VALUE + 1] = {0};
    value_of(key, value);
    int len;
    if (set) {
        len = snprintf(request, sizeof request, "set k%u 0 0 %d\r\n%s\r\n", key, VALUE, value);
        c->expected_len = (size_t)snprintf(c->expected, sizeof c->expected, "STORED\r\n");
        sets++;
    } else {
        len = snprintf(request, sizeof request, "get k%u\r\n", key);
        c->expected_len = (size_t)snprintf(c->expected, sizeof c->expected, "VALUE k%u 0 %d\r\n%s\r\nEND\r\n", key,
                                           VALUE, value);
        gets++;
    }
    c->seen = 0;
    c->asked_ns = now_ns();
    send_all(c->fd, request, (size_t)len);
}

static void ask_next(struct connection *c)
{
    c->seed = c->seed * 6364136223846793005u + 1442695040888963407u;
    ask(c, (unsigned)(c->seed >> 40) % KEYS, (c->seed >> 33) % 10 == 0);
}

/* Whether the answer is complete. */
static int take(struct connection *c)
{
    char bytes[ANSWER_MAX];
    ssize_t got = recv(c->fd, bytes, sizeof bytes, 0);
    if (got < 0 && errno == EINTR)
        return 0;
    if (got <= 0)
        die("recv");
    if (c->seen + (size_t)got > c->expected_len || memcmp(bytes, c->expected + c->seen, (size_t)got)) {
        fprintf(stderr, "wrong answer: %.*s\n", (int)got, bytes);
        exit(3);
    }
    c->seen += (size_t)got;
    if (c->seen < c->expected_len)
        return 0;
    uint64_t took = now_ns() - c->asked_ns;
    if (took > longest_ns)
        longest_ns = took;
    return 1;
}

static void fill(struct connection *c)
{
    for (unsigned key = 0; key < KEYS; key++) {
        ask(c, key, 1);
        while (!take(c))
            ;
    }
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "mcload PORT CONNECTIONS REQUESTS\n");
        return 2;
    }
    int count = atoi(argv[2]);
    long requests = atol(argv[3]), asked = 0, answered = 0;
    struct pollfd polls[CONNECTIONS_MAX];
    if (count < 1 || count > CONNECTIONS_MAX || requests < count)
        return 2;
    for (int i = 0; i < count; i++) {
        connections[i].fd = connect_loopback(atoi(argv[1]));
        connections[i].seed = (uint64_t)i * 7919 + 1;
        polls[i] = (struct pollfd){.fd = connections[i].fd, .events = POLLIN};
    }
    fill(&connections[0]);
    longest_ns = sets = gets = 0;
    uint64_t start = now_ns();
    /* A share each, so that which keys are asked does not depend on who is answered first. */
    long left[CONNECTIONS_MAX];
    for (int i = 0; i < count; i++) {
        left[i] = requests / count - 1;
        ask_next(&connections[i]);
        asked++;
    }
    while (answered < asked) {
        if (poll(polls, (nfds_t)count, -1) < 0 && errno != EINTR)
            die("poll");
        for (int i = 0; i < count; i++) {
            if (!polls[i].revents || !take(&connections[i]))
                continue;
            answered++;
            if (left[i] > 0) {
                left[i]--;
                asked++;
                ask_next(&connections[i]);
            }
        }
    }
    double seconds = (double)(now_ns() - start) / 1e9;
    uint64_t words[] = {sets, gets, (uint64_t)answered};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = (hash ^ words[i]) * 0x100000001b3u;
    printf("name=mcload requests=%ld per_s=%.0f longest_us=%.1f hash=%016llx\n", answered,
           (double)answered / seconds, (double)longest_ns / 1e3, (unsigned long long)hash);
    return 0;
}
