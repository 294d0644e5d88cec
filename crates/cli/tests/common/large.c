/* Maps memory, large and small, grows its heap, and prints which of it is to have huge pages; once at the beginning, and once more for
 * each line on standard input, with memory that it maps then. "none" where the kernel knows of no huge pages. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char *map(size_t bytes)
{
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        exit(2);
    memset(at, 1, bytes);
    return at;
}

/* Whether the mapping around an address is to have huge pages. */
static int is_huge(const char *address)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned long start, end;
    int inside = 0, huge = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = start <= (unsigned long)address && (unsigned long)address < end;
        else if (inside && !strncmp(line, "VmFlags:", 8))
            huge = strstr(line, " hg") != NULL;
    }
    if (file)
        fclose(file);
    return huge;
}

int main(void)
{
    char line[16];
    if (madvise(map(4096), 4096, MADV_NOHUGEPAGE)) {
        puts("none");
        return 0;
    }
    do {
        char *large = map(16 << 20), *small = map(64 << 10), *refused = map(8 << 20);
        char *heap = sbrk(8 << 20);
        memset(heap, 1, 8 << 20);
        madvise(refused, 8 << 20, MADV_NOHUGEPAGE);
        printf("large %d small %d refused %d heap %d\n", is_huge(large + (8 << 20)), is_huge(small),
               is_huge(refused + 4096), is_huge(heap + (4 << 20)));
        fflush(stdout);
    } while (fgets(line, sizeof line, stdin));
    return 0;
}
