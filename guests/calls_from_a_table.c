// Shows: what looks like a table of constants in the program's text is executed by several threads at once, and makes system calls.
// Breaks if: the page is not guarded, its first execution ends the program, or arms one thread only.
#include "calls_past_the_gate.h"

/* Without a word for unwinders: nothing says that this is code. */
__asm__(".pushsection .text\n"
        ".balign 4096\n"
        "table: .byte 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x0f, 0x05, 0xc3\n"
        ".balign 4096\n"
        ".popsection\n");
extern const unsigned char table[];

static caller make(void)
{
    return (caller)(void *)table;
}

int main(void)
{
    printf("sum %ld\n", run_callers(make));
    return guest_ok();
}
