// Shows: two shells by popen at a time, one read and one written line by line over half a second, and system() in between.
// Breaks if: a shell's line is lost or doubled, its own short commands disturb it, or pclose shows another status.
// kit: tree
#include "guest.h"
#include <sys/wait.h>

enum { LINES = 50 };

int main(void)
{
    char line[64];
    long sum = 0;

    guest_scratch();
    struct guest_name name = guest_path("out");
    char script[2 * PATH_MAX];
    snprintf(script, sizeof script, "while read n; do echo $((n * n)); done >'%s'; exit 9", name.s);
    FILE *in = popen("i=0; while [ $i -lt 50 ]; do echo line $i; i=$((i+1)); sleep 0.008; done; exit 8", "r");
    FILE *out = popen(script, "w");
    CHECK(in && out);
    for (int n = 0; n < LINES; n++) {
        CHECK(fgets(line, sizeof line, in) && strncmp(line, "line ", 5) == 0);
        CHECK(strtol(line + 5, NULL, 10) == n);
        CHECK(fprintf(out, "%d\n", n) > 0 && fflush(out) == 0);
        if (n % 10 == 9)
            CHECK(WEXITSTATUS(system("test $(echo a | wc -c) = 2 && exit 7")) == 7);
    }
    CHECK(!fgets(line, sizeof line, in));
    int status = pclose(in);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 8);
    status = pclose(out);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 9);
    FILE *squares = fopen(name.s, "r");
    CHECK(squares);
    for (long n = 0; n < LINES; n++) {
        CHECK(fgets(line, sizeof line, squares) && strtol(line, NULL, 10) == n * n);
        sum += n * n;
    }
    CHECK(!fgets(line, sizeof line, squares));
    CHECK(fclose(squares) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    printf("sum %ld\n", sum);
    return guest_ok();
}
