// Shows: a mapped file that nobody had changed is written by the program itself: mappings and standby follow.
// Breaks if: a standby has the file mapped and sees what its primary writes before it has come there itself.
// kit: allow unprotected the standby is made anew when the file is opened to be written
#include "guest.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 64, ROUNDS = 40 };

int main(void)
{
    char text[PAGE] = "", back[PAGE];

    guest_scratch();
    int fd = open(guest_path("file").s, O_CREAT | O_WRONLY, 0600);
    CHECK(fd >= 0 && ftruncate(fd, PAGES * PAGE) == 0 && close(fd) == 0);
    for (int i = 0; i < 220; i++)
        guest_pause_us(10000);
    fd = open(guest_path("file").s, O_RDONLY);
    CHECK(fd >= 0);
    const char *shared = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    const char *own = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(shared != MAP_FAILED && own != MAP_FAILED);
    guest_pause_us(20000);
    int out = open(guest_path("file").s, O_WRONLY);
    CHECK(out >= 0);
    for (int i = 0; i < ROUNDS; i++) {
        /* What it was, before it is written. */
        CHECK(shared[i * PAGE] == 0 && own[(i + 1) * PAGE] == 0);
        snprintf(text, sizeof text, "round %d", i);
        CHECK(pwrite(out, text, PAGE, i * PAGE) == PAGE);
        CHECK(pread(fd, back, PAGE, i * PAGE) == PAGE && strcmp(back, text) == 0);
        CHECK(strcmp(shared + i * PAGE, text) == 0);
        puts(shared + i * PAGE);
        guest_pause_us(1000);
    }
    CHECK(unlink(guest_path("file").s) == 0);
    guest_scratch_end();
    return guest_ok();
}
