// Shows: a pipeline as a shell makes it: three processes by fork, dup2 and exec, joined by pipes; the parent reads the end of it and waits for all.
// Breaks if: a line is lost, doubled or cut in a pipe between two processes, or the end of a pipe is held open by a copy.
// kit: tree
#include "guest.h"
#include <sys/wait.h>

enum { LINES = 300 };

static int count_up(void)
{
    for (int n = 0; n < LINES; n++) {
        printf("%d\n", n);
        if (n % 3 == 0)
            CHECK(fflush(stdout) == 0);
        guest_pause_us(1300);
    }
    return 51;
}

static int square(void)
{
    char line[64];

    while (fgets(line, sizeof line, stdin)) {
        long n = strtol(line, NULL, 10);
        printf("%ld %ld\n", n, n * n);
        if (n % 5 == 0)
            CHECK(fflush(stdout) == 0);
    }
    return 52;
}

static int add_up(void)
{
    char line[64];
    long wanted = 0, sum = 0, n, nn;

    while (fgets(line, sizeof line, stdin)) {
        CHECK(sscanf(line, "%ld %ld", &n, &nn) == 2 && n == wanted++ && nn == n * n);
        sum += nn;
        if (n % 7 == 0)
            CHECK(printf("%ld\n", sum) > 0 && fflush(stdout) == 0);
    }
    printf("end %ld\n", sum);
    return 53;
}

static pid_t start(char *name, const char *role, int in, int out, int spare)
{
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(in < 0 || (dup2(in, 0) == 0 && close(in) == 0));
        CHECK(dup2(out, 1) == 1 && close(out) == 0 && close(spare) == 0);
        execl("/proc/self/exe", name, role, NULL);
        _exit(127);
    }
    CHECK((in < 0 || close(in) == 0) && close(out) == 0);
    return pid;
}

int main(int argc, char **argv)
{
    int a[2], b[2], c[2], status, lines = 0;
    char line[64];
    pid_t pids[3];

    if (argc == 2)
        return argv[1][0] == 'c' ? count_up() : argv[1][0] == 's' ? square() : add_up();
    CHECK(pipe(a) == 0);
    pids[0] = start(argv[0], "count", -1, a[1], a[0]);
    CHECK(pipe(b) == 0);
    pids[1] = start(argv[0], "square", a[0], b[1], b[0]);
    CHECK(pipe(c) == 0);
    pids[2] = start(argv[0], "add", b[0], c[1], c[0]);
    FILE *end = fdopen(c[0], "r");
    CHECK(end);
    while (fgets(line, sizeof line, end)) {
        lines++;
        if (line[0] == 'e')
            printf("%s", line);
    }
    CHECK(fclose(end) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(waitpid(pids[i], &status, 0) == pids[i] && WIFEXITED(status) && WEXITSTATUS(status) == 51 + i);
    printf("lines %d\n", lines);
    return guest_ok();
}
