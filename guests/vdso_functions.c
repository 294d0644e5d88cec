// Shows: every function of the kernel's vDSO, called as C libraries and language runtimes do, those of newer kernels as well.
// Breaks if: a function that was asked for before the runtime came is taken away: getrandom() then fails in newer C libraries.
#include "guest.h"
#include <elf.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>

enum { THREADS = 3, ROUNDS = 40 };

/* The address of a function of the vDSO's, NULL where this kernel has none of that name. */
static void *vdso(const char *name)
{
    const char *base = (const char *)getauxval(AT_SYSINFO_EHDR);
    const ElfW(Ehdr) *header = (const void *)base;
    const ElfW(Phdr) *program = (const void *)(base + header->e_phoff);
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL, *load = NULL;
    const ElfW(Word) *hash = NULL, *gnu = NULL;
    const ElfW(Dyn) *dynamic = NULL;
    size_t count = 0;

    for (int i = 0; i < header->e_phnum; i++) {
        if (program[i].p_type == PT_LOAD)
            load = base + program[i].p_offset - program[i].p_vaddr;
        if (program[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)(base + program[i].p_offset);
    }
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        const void *at = load + dynamic->d_un.d_ptr;
        switch (dynamic->d_tag) {
        case DT_SYMTAB: symbols = at; break;
        case DT_STRTAB: strings = at; break;
        case DT_HASH: hash = at; break;
        case DT_GNU_HASH: gnu = at; break;
        }
    }
    if (hash)
        count = hash[1];
    else if (gnu) {
        const ElfW(Word) *buckets = gnu + 4 + gnu[2] * 2, *chain = buckets + gnu[0];
        for (ElfW(Word) i = 0; i < gnu[0]; i++)
            if (buckets[i] >= count)
                count = buckets[i];
        while (!(chain[count - gnu[1]] & 1))
            count++;
        count++;
    }
    for (size_t i = 0; i < count; i++)
        if (symbols[i].st_shndx != SHN_UNDEF && strcmp(strings + symbols[i].st_name, name) == 0)
            return (void *)(load + symbols[i].st_value);
    return NULL;
}

/* As the kernel's <linux/random.h> has it. */
struct opaque_params {
    unsigned size, protection, flags, reserved[13];
};

static struct opaque_params params;
static long (*vgetrandom)(void *, size_t, unsigned, void *, size_t);

static void nothing(void)
{
}

/* Asked while the program is relocated, before the constructor of any library: so early asks the C library itself. */
static void (*ask(void))(void)
{
    vgetrandom = vdso("__vdso_getrandom");
    if (vgetrandom && vgetrandom(NULL, 0, 0, &params, ~0UL) != 0)
        vgetrandom = NULL;
    return nothing;
}

void early(void) __attribute__((ifunc("ask")));

/* What a C library does: the vDSO's function if it has one, and then its answer is the answer. */
static long draw(void *to, size_t bytes, unsigned flags, void *state)
{
    if (!vgetrandom)
        return syscall(SYS_getrandom, to, bytes, flags);
    return vgetrandom(to, bytes, flags, state, params.size);
}

static void draws(void)
{
    unsigned char one[40], two[40], back[40];
    void *state = NULL;
    int own[2];

    CHECK(pipe2(own, O_CLOEXEC) == 0);
    if (vgetrandom) {
        state = mmap(NULL, 4096, (int)params.protection, (int)params.flags, -1, 0);
        CHECK(state != MAP_FAILED && params.size <= 4096);
    }
    for (int r = 0; r < ROUNDS; r++) {
        RETURNS(draw(one, sizeof one, 0, state), sizeof one);
        RETURNS(draw(two, sizeof two, 1 /* GRND_NONBLOCK */, state), sizeof two);
        CHECK(memcmp(one, two, sizeof one) != 0);
        RETURNS(draw(one, 0, 0, state), 0);
        /* What went out is what memory still says, whichever copy looks. */
        guest_write_all(own[1], one, sizeof one);
        guest_pause_us(200);
        guest_read_all(own[0], back, sizeof back);
        CHECK(memcmp(one, back, sizeof one) == 0);
    }
    if (vgetrandom) {
        RETURNS(draw(one, sizeof one, 0x8000, state), -EINVAL);
        CHECK(munmap(state, 4096) == 0);
    }
    CHECK(close(own[0]) == 0 && close(own[1]) == 0);
}

static void clocks(void)
{
    int (*gettime)(int, struct timespec *) = vdso("__vdso_clock_gettime");
    int (*getres)(int, struct timespec *) = vdso("__vdso_clock_getres");
    int (*timeofday)(struct timeval *, void *) = vdso("__vdso_gettimeofday");
    time_t (*seconds)(time_t *) = vdso("__vdso_time");
    int (*getcpu)(unsigned *, unsigned *, void *) = vdso("__vdso_getcpu");

    for (int r = 0; r < ROUNDS; r++) {
        struct timespec at, again, unit;
        struct timeval now;
        time_t whole;
        unsigned cpu = 77777, node = 77777;

        for (int clock = 0; gettime && clock < 12; clock++) {
            if (clock >= 8 && clock <= 10)
                continue; /* Clocks of alarms need hardware; there is no tenth. */
            CHECK(gettime(clock, &at) == 0 && gettime(clock, &again) == 0);
            CHECK(again.tv_sec >= at.tv_sec || clock == 0);
            if (getres) {
                CHECK(getres(clock, &unit) == 0 && unit.tv_sec == 0 && unit.tv_nsec > 0);
                CHECK(getres(clock, NULL) == 0);
            }
        }
        if (gettime)
            RETURNS(gettime(1000, &at), -EINVAL);
        if (getres)
            RETURNS(getres(1000, &at), -EINVAL);
        if (timeofday)
            CHECK(timeofday(&now, NULL) == 0 && timeofday(NULL, NULL) == 0 && now.tv_usec < 1000000);
        if (seconds)
            CHECK(seconds(NULL) > 0 && (now.tv_sec = seconds(&whole)) > 0 && now.tv_sec == whole);
        if (getcpu)
            CHECK(getcpu(&cpu, &node, NULL) == 0 && getcpu(NULL, NULL, NULL) == 0 && cpu < 77777 && node < 77777);
        guest_pause_us(200);
    }
}

static void *run(void *unused)
{
    (void)unused;
    clocks();
    draws();
    return NULL;
}

int main(void)
{
    pthread_t thread[THREADS];

    early();
    for (int i = 0; i < THREADS; i++)
        thread[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        guest_join(thread[i]);
    return guest_ok();
}
