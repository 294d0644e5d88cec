// Shows: a file that is mapped as a text while threads run, as dlopen does, makes system calls of its own.
// Breaks if: what is mapped later is not looked at, or a guarded page stays one when it is unmapped and another comes there.
// kit: varies
#include "calls_past_the_gate.h"

static caller make(void)
{
    static const unsigned char bytes[] = {CALLER_BYTES};
    char path[] = "text-XXXXXX";
    unsigned char page[4096] = {0}, *text;
    int fd = mkstemp(path);

    CHECK(fd >= 0 && unlink(path) == 0);
    memcpy(page, bytes, sizeof bytes);
    CHECK(write(fd, page, sizeof page) == sizeof page);
    /* First one that nobody executes. */
    text = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    CHECK(text != MAP_FAILED && memcmp(text, bytes, sizeof bytes) == 0 && munmap(text, 4096) == 0);
    text = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    CHECK(text != MAP_FAILED && close(fd) == 0);
    return (caller)(void *)text;
}

int main(void)
{
    printf("sum %ld\n", run_callers(make));
    return guest_ok();
}
