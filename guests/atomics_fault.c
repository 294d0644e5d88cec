// Shows: an atomic instruction on memory that a handler makes writable faults where it stands, with all registers as they were, and
// is made once afterwards; one on a stack that ends there, and flags that live across an exchange.
// Breaks if: the fault is seen in code of the runtime's, a clock stays held behind it, or the stub writes to the stack.
// kit: stale a race, and beside a recording nobody orders atomic instructions
// kit: serial one thread at a time: its threads are ordered by nothing that a recording has
// kit: schedule its threads are ordered by atomic instructions of their own
#include "guest.h"
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

static long *page;
static volatile sig_atomic_t faults;

extern char fault_here[];

static void on_fault(int signal, siginfo_t *info, void *at)
{
    ucontext_t *context = at;

    (void)signal;
    CHECK(info->si_addr == page);
    CHECK(context->uc_mcontext.gregs[REG_RIP] == (greg_t)fault_here);
    CHECK(context->uc_mcontext.gregs[REG_RAX] == 0x1234 && context->uc_mcontext.gregs[REG_RCX] == 0x4321);
    CHECK(context->uc_mcontext.gregs[REG_RDX] == 5);
    ZERO(mprotect(page, 4096, PROT_READ | PROT_WRITE));
    faults = faults + 1;
}

static long add_with_known_registers(long *to, long value)
{
    long rax = 0x1234, rcx = 0x4321;

    __asm__ volatile(".globl fault_here\nfault_here: lock xaddq %%rdx, (%3)\n\tnop\n\tnop\n\tnop\n\tnop"
                     : "+a"(rax), "+c"(rcx), "+d"(value)
                     : "r"(to)
                     : "memory", "cc");
    CHECK(rax == 0x1234 && rcx == 0x4321);
    return value;
}

static void *other(void *arg)
{
    for (int n = 0; n < 2000; n++)
        __atomic_add_fetch((long *)arg + 1, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    long word = 7, carry = 0, red = 0;

    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    ZERO(sigaction(SIGSEGV, &action, NULL));
    pthread_t thread = guest_start(other, page + 0x80);
    for (int r = 0; r < 50; r++) {
        ZERO(mprotect(page, 4096, PROT_READ | PROT_WRITE));
        guest_pause_us(1000);
        page[0] = r;
        if (r == 10)
            guest_join(thread);
        if (r > 10) {
            ZERO(mprotect(page, 4096, PROT_READ));
            CHECK(add_with_known_registers(page, 5) == r);
            CHECK(page[0] == r + 5 && faults == r - 10);
        }
        // The red zone and the flags live on.
        __asm__ volatile("movq $0x77, -64(%%rsp)\n\tstc\n\txchgq %0, (%3)\n\tnop\n\tnop\n\tsetc %b1\n\tmovq -64(%%rsp), %2"
                         : "+r"(word), "+q"(carry), "=r"(red)
                         : "r"(page + 64)
                         : "memory", "cc");
        CHECK(carry == 1 && red == 0x77);
    }
    CHECK(page[0x81] == 2000);
    return guest_ok();
}
