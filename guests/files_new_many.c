// Shows: thousands of new files are made, written and removed while large files that nobody changes are mapped.
// Breaks if: one of them is taken for a file that is mapped, which costs the standby.
#include "guest.h"
#include <dlfcn.h>
#include <sys/mman.h>

enum { FILES = 4000 };

/* As the loader does it, but for good: large files that nobody changes. */
static void map_library(const char *name)
{
    struct link_map_start {
        unsigned long base;
        char *name;
    } *map;
    void *library = dlopen(name, RTLD_NOW);

    CHECK(library != NULL && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0);
    int fd = open(map->name, O_RDONLY);
    char *bytes = mmap(NULL, 100000, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(fd >= 0 && bytes != MAP_FAILED && close(fd) == 0 && bytes[1] == 'E');
}

int main(void)
{
    map_library("libc.so.6");
    map_library("libm.so.6");
    map_library("libmvec.so.1");
    map_library("ld-linux-x86-64.so.2");
    guest_scratch();
    for (int i = 0; i < FILES; i++) {
        char file[32];
        snprintf(file, sizeof file, "file%d", i);
        int fd = open(guest_path(file).s, O_WRONLY | O_CREAT | O_EXCL, 0600);
        CHECK(fd >= 0);
        guest_write_all(fd, file, sizeof file);
        CHECK(close(fd) == 0);
        if (i % 1000 == 0)
            guest_pause_us(10000);
    }
    for (int i = 0; i < FILES; i++) {
        char file[32];
        snprintf(file, sizeof file, "file%d", i);
        CHECK(unlink(guest_path(file).s) == 0);
    }
    guest_scratch_end();
    return guest_ok();
}
