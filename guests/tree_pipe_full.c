// Shows: a parent writes a sequence into a pipe that is full nearly always, in small and in large writes; a slow child finds every byte once.
// Breaks if: a write that waited for room when its process was killed is taken for done, or one of which a part was done is done again.
// kit: tree
#include "guest.h"
#include <sys/wait.h>

enum { TOTAL = 1500000, SLOW = 40000 };

static unsigned char at(long place)
{
    return (unsigned char)(place * 31 + (place >> 8) * 7 + (place >> 16));
}

static void child(int in)
{
    unsigned char buffer[3000];
    long place = 0, pause = SLOW;
    ssize_t got;

    while ((got = read(in, buffer, sizeof buffer)) > 0) {
        for (ssize_t i = 0; i < got; i++, place++)
            CHECK(buffer[i] == at(place));
        if (place > pause) {
            pause += SLOW;
            guest_pause_us(8000);
        }
    }
    CHECK(got == 0 && place == TOTAL);
    _exit(9);
}

int main(void)
{
    static const int lengths[] = { 4096, 700, 10000, 1, 65536, 4097 };
    static unsigned char buffer[65536];
    int ends[2], status;
    long place = 0;

    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(ends[1]);
        child(ends[0]);
    }
    close(ends[0]);
    for (int w = 0; place < TOTAL; w++) {
        long len = lengths[w % 6];
        if (len > TOTAL - place)
            len = TOTAL - place;
        for (long i = 0; i < len; i++)
            buffer[i] = at(place + i);
        CHECK(len > 0 && write(ends[1], buffer, (size_t)len) == len);
        place += len;
    }
    CHECK(close(ends[1]) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 9);
    printf("bytes %ld\n", place);
    return guest_ok();
}
