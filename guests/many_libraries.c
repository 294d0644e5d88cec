// Shows: a program with more mappings of files than most: three hundred libraries, as copies of one, and pieces of a file between them.
// Breaks if: the making of another standby has room for so many mappings and no more.
#include "guest.h"
#include <dlfcn.h>
#include <sys/mman.h>

enum { LIBRARIES = 300, PIECES = 300, ROUNDS = 60 };

/* A library of its own for the loader: another file. */
static void copy_library(const char *from, const char *to)
{
    static char bytes[1 << 16];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0700);
    ssize_t n;

    CHECK(in >= 0 && out >= 0);
    while ((n = read(in, bytes, sizeof bytes)) > 0)
        guest_write_all(out, bytes, (size_t)n);
    CHECK(n == 0 && close(in) == 0 && close(out) == 0);
}

int main(void)
{
    struct link_map_start {
        unsigned long base;
        char *name;
    } *map;
    char *first = NULL;
    void *library = dlopen("libutil.so.1", RTLD_NOW | RTLD_LOCAL);

    CHECK(library != NULL && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0);
    first = map->name;
    guest_scratch();
    for (int i = 0; i < LIBRARIES; i++) {
        char file[32];
        snprintf(file, sizeof file, "lib%d.so", i);
        struct guest_name name = guest_path(file);
        copy_library(first, name.s);
        CHECK(dlopen(name.s, RTLD_NOW | RTLD_LOCAL) != NULL && unlink(name.s) == 0);
    }
    struct guest_name data = guest_path("data");
    int fd = open(data.s, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0 && ftruncate(fd, PIECES * 8192) == 0);
    unsigned char *pieces[PIECES];
    for (int i = 0; i < PIECES; i++) {
        pieces[i] = (unsigned char *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, i * 8192);
        CHECK(pieces[i] != MAP_FAILED);
        pieces[i][0] = (unsigned char)i;
    }
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < PIECES; i++) {
            CHECK(pieces[i][0] == (unsigned char)(i + r) && pieces[i][1] == 0);
            pieces[i][0]++;
        }
        guest_pause_us(5000);
    }
    CHECK(close(fd) == 0 && unlink(data.s) == 0);
    guest_scratch_end();
    return guest_ok();
}
