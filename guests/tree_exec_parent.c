// Shows: a program execs itself again and again while its child lives on; each image talks with the child, the last one waits for it.
// Breaks if: the new image has lost its child, its pid or its pipes, or the child's parent is somebody else.
// kit: tree
#include "guest.h"
#include <sys/wait.h>

enum { ROUNDS = 120, IMAGES = 4 };

struct message {
    long number;
    long parent;
};

static void child(int in, int out)
{
    struct message m;

    for (long r = 0; r < ROUNDS * IMAGES; r++) {
        guest_read_all(in, &m, sizeof m);
        CHECK(m.number == r && m.parent == getppid());
        m.number += 5;
        guest_write_all(out, &m, sizeof m);
    }
    CHECK(read(in, &m, 1) == 0);
    _exit(44);
}

static void talk(int image, int out, int in, pid_t pid)
{
    struct message m;
    int status;

    for (long r = image * ROUNDS; r < (image + 1) * ROUNDS; r++) {
        m = (struct message){ r, getpid() };
        guest_write_all(out, &m, sizeof m);
        guest_read_all(in, &m, sizeof m);
        CHECK(m.number == r + 5);
        guest_pause_us(1000);
    }
    CHECK(waitpid(pid, &status, WNOHANG) == 0);
}

int main(int argc, char **argv)
{
    int image = 0, out, in, status;
    pid_t pid;

    if (argc == 6) {
        image = atoi(argv[1]);
        out = atoi(argv[2]);
        in = atoi(argv[3]);
        pid = (pid_t)atoi(argv[4]);
        CHECK(atoi(argv[5]) == getpid());
    } else {
        int down[2], up[2];
        CHECK(pipe(down) == 0 && pipe(up) == 0);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            CHECK(close(down[1]) == 0 && close(up[0]) == 0);
            child(down[0], up[1]);
        }
        CHECK(close(down[0]) == 0 && close(up[1]) == 0);
        out = down[1];
        in = up[0];
    }
    talk(image, out, in, pid);
    if (image + 1 < IMAGES) {
        char texts[5][16];
        const int numbers[5] = { image + 1, out, in, pid, getpid() };
        for (int i = 0; i < 5; i++)
            snprintf(texts[i], sizeof texts[i], "%d", numbers[i]);
        execl("/proc/self/exe", argv[0], texts[0], texts[1], texts[2], texts[3], texts[4], NULL);
        return 1;
    }
    CHECK(close(out) == 0);
    CHECK(waitpid(-1, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 44);
    printf("images %d\n", IMAGES);
    return guest_ok();
}
