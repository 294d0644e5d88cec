// Shows: a child execs this program twice, and each image talks with the parent over the same inherited pipes and keeps its pid.
// Breaks if: the image after an exec is not followed, or is another process to its parent.
// kit: tree
#include "guest.h"
#include <sys/wait.h>

enum { ROUNDS = 120, IMAGES = 3 };

struct message {
    long number;
    long image;
    long pid;
};

/* One image of the child: answers its share of the rounds, then becomes the next. */
static int serve(char *name, int image, int in, int out)
{
    char texts[3][16];
    struct message m;

    for (long r = 0; r < ROUNDS; r++) {
        guest_read_all(in, &m, sizeof m);
        CHECK(m.number == image * ROUNDS + r);
        m.image = image;
        m.pid = getpid();
        guest_write_all(out, &m, sizeof m);
    }
    if (image == IMAGES)
        return 40 + image;
    snprintf(texts[0], sizeof texts[0], "%d", image + 1);
    snprintf(texts[1], sizeof texts[1], "%d", in);
    snprintf(texts[2], sizeof texts[2], "%d", out);
    execl("/proc/self/exe", name, texts[0], texts[1], texts[2], NULL);
    return 1;
}

int main(int argc, char **argv)
{
    int down[2], up[2], status;
    struct message m;

    if (argc == 4)
        _exit(serve(argv[0], atoi(argv[1]), atoi(argv[2]), atoi(argv[3])));
    CHECK(pipe(down) == 0 && pipe(up) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(close(down[1]) == 0 && close(up[0]) == 0);
        _exit(serve(argv[0], 0, down[0], up[1]));
    }
    CHECK(close(down[0]) == 0 && close(up[1]) == 0);
    for (long r = 0; r < (IMAGES + 1) * ROUNDS; r++) {
        m.number = r;
        guest_write_all(down[1], &m, sizeof m);
        guest_read_all(up[0], &m, sizeof m);
        CHECK(m.number == r && m.image == r / ROUNDS && m.pid == pid);
        guest_pause_us(1000);
    }
    CHECK(read(up[0], &m, 1) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 40 + IMAGES);
    printf("images %d\n", IMAGES + 1);
    return guest_ok();
}
