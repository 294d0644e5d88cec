// Shows: a private mapping of a file that lives long, partly written, partly read, while the file under it changes.
// Breaks if: a copy made meanwhile reads a page of the mapping that it had not touched and finds the file's future.
#include "guest.h"
#include <sys/mman.h>

enum { PAGES = 48, PAGE = 4096 };

int main(void)
{
    unsigned char block[PAGE];
    uint64_t sum = 0;

    guest_scratch();
    struct guest_name name = guest_path("private");
    int fd = open(name.s, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    for (int p = 0; p < PAGES; p++) {
        memset(block, p + 1, PAGE);
        CHECK(pwrite(fd, block, PAGE, p * PAGE) == PAGE);
    }
    unsigned char *m = (unsigned char *)mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(m != MAP_FAILED);
    for (int p = 0; p < PAGES; p++) {
        /* Every second page becomes ours; of the others the last look is before the file changes there. */
        for (int at = 0; at < PAGE; at += 64) {
            CHECK(m[p * PAGE + at] == (unsigned char)(p + 1));
            sum = guest_mix(sum ^ m[p * PAGE + at]);
        }
        if (p % 2 == 0)
            memset(m + p * PAGE, 200 - p, PAGE);
        guest_pause_us(2000);
        memset(block, 255, PAGE);
        CHECK(pwrite(fd, block, PAGE, p * PAGE) == PAGE);
        guest_pause_us(1000);
        for (int q = 0; q <= p; q += 2)
            CHECK(m[q * PAGE] == (unsigned char)(200 - q) && m[q * PAGE + PAGE - 1] == (unsigned char)(200 - q));
    }
    CHECK(pread(fd, block, PAGE, 0) == PAGE && block[0] == 255);
    CHECK(munmap(m, PAGES * PAGE) == 0 && close(fd) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    printf("sum %016lx\n", (unsigned long)sum);
    return guest_ok();
}
