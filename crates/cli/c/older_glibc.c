/* The command runs under C libraries that are older than the one it is linked with, down to 2.31 (Debian 11), where it says what
 * is missing for protection. glibc 2.34 put its threads into libc.so and gave what moved a new version; the old one is there
 * as well, under every glibc, and takes the same arguments. The linker sends each of these names here (--wrap, see build.rs). */
#define _GNU_SOURCE
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OLD(name, version) \
    __asm__(".symver old_" #name ", " #name "@" version "\n" \
            ".text\n.globl __wrap_" #name "\n.hidden __wrap_" #name "\n.type __wrap_" #name ", @function\n" \
            "__wrap_" #name ": jmp *old_" #name "@GOTPCREL(%rip)\n")

OLD(dlsym, "GLIBC_2.2.5");
OLD(pthread_attr_getguardsize, "GLIBC_2.2.5");
OLD(pthread_attr_getstack, "GLIBC_2.2.5");
OLD(pthread_attr_setstacksize, "GLIBC_2.2.5");
OLD(pthread_create, "GLIBC_2.2.5");
OLD(pthread_detach, "GLIBC_2.2.5");
OLD(pthread_getattr_np, "GLIBC_2.2.5");
OLD(pthread_join, "GLIBC_2.2.5");
OLD(pthread_key_create, "GLIBC_2.2.5");
OLD(pthread_key_delete, "GLIBC_2.2.5");
OLD(pthread_setname_np, "GLIBC_2.12");
OLD(pthread_setspecific, "GLIBC_2.2.5");
OLD(pthread_sigmask, "GLIBC_2.2.5");

/* Functions of the headers' own before 2.33. The kernel's structure is the C library's. */
int __wrap_fstat64(int file, struct stat64 *status) { return (int)syscall(SYS_fstat, file, status); }
int __wrap_lstat64(const char *path, struct stat64 *status) { return (int)syscall(SYS_lstat, path, status); }
int __wrap_fstatat64(int at, const char *path, struct stat64 *status, int how)
{
    return (int)syscall(SYS_newfstatat, at, path, status, how);
}
int __wrap_stat64(const char *path, struct stat64 *status) { return (int)syscall(SYS_stat, path, status); }

/* Before 2.34 a program brought the function along that calls its constructors. */
typedef int (*main_function)(int, char **, char **);
typedef void (*constructor)(int, char **, char **);
extern constructor __init_array_start[] __attribute__((visibility("hidden")));
extern constructor __init_array_end[] __attribute__((visibility("hidden")));

static int initialise(int count, char **arguments, char **environment)
{
    for (constructor *each = __init_array_start; each < __init_array_end; each++)
        (*each)(count, arguments, environment);
    return 0;
}

extern int old_start(main_function, int, char **, main_function, void (*)(void), void (*)(void), void *);
__asm__(".symver old_start, __libc_start_main@GLIBC_2.2.5");

int __wrap___libc_start_main(main_function begin, int count, char **arguments, void *unused, void *neither,
                             void (*loader_end)(void), void *stack)
{
    (void)unused, (void)neither;
    return old_start(begin, count, arguments, initialise, NULL, loader_end, stack);
}
