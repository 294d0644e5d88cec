// Shows: an orphan has another parent as soon as its own has ended, also while nobody has waited for that; what it then dies of is not how the program ends.
// Breaks if: an ended process counts as a parent until it is waited for, or an orphan's end is taken for the program's.
// kit: no-kill which of its processes is protected when depends on how short they live
#include "guest.h"

#include <signal.h>
#include <sys/wait.h>

enum { ORPHANS = 4, LOOKS = 4000, LOOK_US = 500 };

int main(void)
{
    int lines[2];

    ZERO(pipe(lines));
    for (int i = 0; i < ORPHANS; i++) {
        pid_t middle = fork();
        CHECK(middle >= 0);
        if (middle == 0) {
            pid_t own = getpid();
            if (fork() != 0)
                _exit(0);
            ZERO(setsid() == -1);
            for (int look = 0; look < LOOKS && getppid() == own; look++)
                guest_pause_us(LOOK_US);
            char said = getppid() == own ? 'n' : 'y';
            guest_write_all(lines[1], &said, 1);
            close(lines[0]);
            for (;;)
                guest_write_all(lines[1], "x", 1);
        }
    }
    close(lines[1]);
    for (int changed = 0; changed < ORPHANS;) {
        char said;
        guest_read_all(lines[0], &said, 1);
        CHECK(said != 'n');
        changed += said == 'y';
    }
    for (int i = 0; i < ORPHANS; i++)
        CHECK(wait(NULL) > 0);
    close(lines[0]);
    guest_pause_us(300);
    return guest_ok();
}
