// Shows: a child that has given up root, and that writes another's number over its own in all memory that it shares with others, leads
//        its parent's signals nowhere else.
// Breaks if: what a process with fewer rights may write decides whom one with more rights signals.
// kit: tree
// kit: allow unprotected the child may cost itself its standby
// kit: allow diverged as above
// kit: no-record what it finds in the memory of others is not there in a replay
#include "guest.h"
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

enum { NOBODY = 65534, WORDS = 64, ROUNDS = 60, FILE_MAX = 64 << 20 };

/* Ends by SIGUSR1, as anybody who was not meant; answers until the pipe ends. */
static pid_t decoy(int ask[2], int answer[2])
{
    CHECK(pipe(ask) == 0 && pipe(answer) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        char byte;
        close(ask[1]);
        close(answer[0]);
        while (read(ask[0], &byte, 1) == 1)
            CHECK(write(answer[1], &byte, 1) == 1);
        _exit(0);
    }
    close(ask[0]);
    close(answer[1]);
    return pid;
}

/* The words with this value in the memory of files that others may have mapped as well. */
static int find(uint32_t value, volatile uint32_t **found)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");

    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to, offset;
        char rights[8];
        CHECK(sscanf(line, "%lx-%lx %7s %lx", &from, &to, rights, &offset) == 4);
        if (rights[1] != 'w' || rights[3] != 's' || offset != 0 || to - from > FILE_MAX)
            continue;
        for (unsigned long at = from; at < to && count < WORDS; at += 4)
            if (*(volatile uint32_t *)at == value)
                found[count++] = (volatile uint32_t *)at;
    }
    fclose(maps);
    return count;
}

static void forge(pid_t other, int life)
{
    struct pollfd end = { life, POLLIN, 0 };
    volatile uint32_t *words[WORDS];
    uint32_t own = (uint32_t)getpid();
    gid_t none = NOBODY;

    CHECK(signal(SIGUSR1, SIG_IGN) != SIG_ERR);
    CHECK(setgroups(1, &none) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    FAILS(kill(other, SIGUSR1), EPERM);
    while (poll(&end, 1, 3) == 0) {
        int count = find(own, words);
        for (int i = 0; i < count; i++) {
            *words[i] = (uint32_t)other;
            guest_pause_us(3000);
            *words[i] = own;
        }
    }
    _exit(0);
}

int main(void)
{
    int ask[2], answer[2], life[2], status;
    char byte = 0;

    if (geteuid() != 0) {
        puts("not root: there is nothing to give up");
        return guest_ok();
    }
    pid_t bystander = decoy(ask, answer);
    CHECK(pipe(life) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(life[1]);
        forge(bystander, life[0]);
    }
    guest_pause_us(60000);
    for (int r = 0; r < ROUNDS; r++) {
        kill(child, SIGUSR1);
        guest_pause_us(2500);
        CHECK(write(ask[1], &byte, 1) == 1);
        CHECK(read(answer[0], &byte, 1) == 1);
    }
    /* A process that hides itself may hide its end. */
    close(life[1]);
    for (int look = 0; look < 200 && waitpid(child, &status, WNOHANG) == 0; look++)
        guest_pause_us(5000);
    close(ask[1]);
    CHECK(waitpid(bystander, &status, 0) == bystander && status == 0);
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
