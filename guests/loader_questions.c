// Shows: what a program asks the loader: dl_iterate_phdr, dladdr, dlsym with versions and RTLD_NEXT, a library in a space of its own, weak symbols.
// Breaks if: the runtime's own library is in the way of a lookup, or an address has another name in a copy.
#include "guest.h"
#include <dlfcn.h>
#include <link.h>
#include <math.h>

enum { ROUNDS = 50 };

extern int no_such_function_anywhere(void) __attribute__((weak));

static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
    long *found = (long *)arg;

    CHECK(size >= sizeof *info && info->dlpi_phnum > 0);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, own = (uintptr_t)look;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && own >= start && own < start + info->dlpi_phdr[i].p_memsz)
            (*found)++;
    }
    return 0;
}

/* The loader's own lock is behind every door: at a promotion a thread that holds it may wait for one that wants it. */
static pthread_mutex_t loader = PTHREAD_MUTEX_INITIALIZER;

static void *ask(void *arg)
{
    for (int r = 0; r < ROUNDS; r++) {
        long found = 0;
        Dl_info info;
        ZERO(pthread_mutex_lock(&loader));
        CHECK(dl_iterate_phdr(look, &found) == 0 && found == 1);
        CHECK(dladdr((void *)&malloc, &info) && info.dli_fname && info.dli_sname);
        CHECK(dlsym(RTLD_DEFAULT, "strtol") && dlsym(RTLD_NEXT, "pthread_mutex_lock") && !dlsym(RTLD_DEFAULT, "no_such_name"));
        CHECK(dlerror() && !dlerror());
        CHECK(dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.14") && !dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_9.9"));
        CHECK(!no_such_function_anywhere);
        ZERO(pthread_mutex_unlock(&loader));
        guest_pause_us(700);
    }
    return arg;
}

int main(void)
{
    pthread_t threads[2];

    for (int i = 0; i < 2; i++)
        threads[i] = guest_start(ask, NULL);
    for (int r = 0; r < 10; r++) {
        ZERO(pthread_mutex_lock(&loader));
        void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
        CHECK(library);
        double (*root)(double) = (double (*)(double))dlsym(library, "sqrt");
        struct link_map *map;
        CHECK(root && root(r * r) == r && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && strstr(map->l_name, "libm"));
        CHECK(dlopen("libm.so.6", RTLD_NOLOAD | RTLD_NOW) == library && dlclose(library) == 0 && dlclose(library) == 0);
        CHECK(!dlopen("/nowhere/libnothing.so", RTLD_NOW) && dlerror());
        ZERO(pthread_mutex_unlock(&loader));
        guest_pause_us(2000);
    }
    for (int i = 0; i < 2; i++)
        guest_join(threads[i]);
    return guest_ok();
}
