// Shows: set_tid_address says who calls, in every thread, and the word that it names is cleared, with a wake, at that thread's end.
// Breaks if: the answer is a copy's number, or the thread of a copy that was made later clears another word.
// kit: allow unprotected it waits by futex calls of its own: turns begin with a new standby
// kit: races the kernel clears the words, and a load that sees that is in no order
#include "guest.h"
#include <linux/futex.h>
#include <sys/syscall.h>

enum { ROUNDS = 12, THREADS = 4 };

static int words[ROUNDS][THREADS];

static void *leave(void *place)
{
    int *word = place;

    /* libc's own word stays as it is: nobody can join this thread any more. */
    RETURNS(syscall(SYS_set_tid_address, word), syscall(SYS_gettid));
    guest_pause_us(4000);
    return NULL;
}

int main(void)
{
    int own;

    for (int r = 0; r < ROUNDS; r++) {
        RETURNS(syscall(SYS_set_tid_address, &own), getpid());
        for (int i = 0; i < THREADS; i++) {
            __atomic_store_n(&words[r][i], 2, __ATOMIC_RELEASE);
            guest_start(leave, &words[r][i]);
        }
        for (int i = 0; i < THREADS; i++)
            for (int seen; (seen = __atomic_load_n(&words[r][i], __ATOMIC_ACQUIRE)) != 0;)
                if (syscall(SYS_futex, &words[r][i], FUTEX_WAIT, seen, NULL, NULL, 0) != 0)
                    CHECK(errno == EAGAIN || errno == EINTR);
        guest_pause_us(2000);
    }
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
