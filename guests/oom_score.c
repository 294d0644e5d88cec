// Shows: the score by which the kernel chooses whom to end where memory runs out is what the program has set, at any time.
// Breaks if: a standby's own score, which is the highest, is not given back before it takes over.
#include "guest.h"

static int score(void)
{
    char text[16] = "";
    int fd = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);

    CHECK(fd >= 0);
    CHECK(read(fd, text, sizeof text - 1) > 0);
    CHECK(close(fd) == 0);
    return atoi(text);
}

static void set(int value)
{
    char text[16];
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    CHECK(fd >= 0);
    int length = snprintf(text, sizeof text, "%d", value);
    CHECK(write(fd, text, (size_t)length) == length);
    CHECK(close(fd) == 0);
}

int main(void)
{
    int own = score();

    for (int round = 0; round < 50; round++) {
        if (round % 10 == 0 && own + round < 1000)
            set(own + round);
        int expected = own + round < 1000 ? own + round / 10 * 10 : score();
        CHECK(score() == expected);
        guest_pause_us(3000);
        CHECK(score() == expected);
    }
    puts("ok");
    return 0;
}
