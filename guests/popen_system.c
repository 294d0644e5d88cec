// Shows: popen for reading and for writing, pclose statuses, system() and its exit code.
// Breaks if: libc's inner clone or its signal handling around the wait is not seen by the doors.
#include "guest.h"
#include <sys/wait.h>

enum { ROUNDS = 12 };

int main(void)
{
    long sum = 0;

    guest_scratch();
    struct guest_name name = guest_path("out");
    CHECK(setenv("OUT", name.s, 1) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        char command[64];
        int a, b;
        snprintf(command, sizeof command, "echo %d $((%d * 2)); exit %d", r, r, r);
        FILE *f = popen(command, "r");
        CHECK(f != NULL && fscanf(f, "%d %d", &a, &b) == 2 && a == r && b == 2 * r);
        int status = pclose(f);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == r);
        f = popen("cat > \"$OUT\"", "w");
        CHECK(f != NULL && fprintf(f, "number %d\n", r) > 0 && pclose(f) == 0);
        f = fopen(name.s, "r");
        CHECK(f != NULL && fscanf(f, "number %d", &a) == 1 && a == r && fclose(f) == 0);
        snprintf(command, sizeof command, "exit %d", r + 1);
        status = system(command);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == r + 1);
        sum += a + b;
    }
    CHECK(system(NULL) != 0 && unlink(name.s) == 0);
    guest_scratch_end();
    printf("sum %ld\n", sum);
    return guest_ok();
}
