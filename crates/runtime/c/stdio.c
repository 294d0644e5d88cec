/* The variadic functions of the C library that work on a stream or on the system log.
 *
 * What only C can say: each gathers its arguments and goes on to the form that takes a va_list, which is a
 * door of this library (src/door/stdio.rs, libc_state.rs). The bodies are hidden; the exported names jump here.
 */
#include <stdarg.h>
#include <stddef.h>

typedef struct _IO_FILE FILE;
extern FILE *stdin, *stdout;

#define HIDDEN __attribute__((visibility("hidden")))

/* body name, va_list form, named parameters, what is passed on, the last named parameter */
#define FORWARD(body, form, named, passed, last) \
    HIDDEN int us_##body named \
    { \
        va_list list; \
        int result; \
        va_start(list, last); \
        result = form passed; \
        va_end(list); \
        return result; \
    }

/* Printing and scanning, on a standard stream and on a given one. */
#define PLAIN(body, fbody, form, type, stream) \
    int form(FILE *, const type *, va_list); \
    FORWARD(body, form, (const type *text, ...), (stream, text, list), text) \
    FORWARD(fbody, form, (FILE *file, const type *text, ...), (file, text, list), text)

/* The forms that a fortified program calls: a flag before the text. */
#define CHECKED(body, fbody, form, type) \
    int form(FILE *, int, const type *, va_list); \
    FORWARD(body, form, (int flag, const type *text, ...), (stdout, flag, text, list), text) \
    FORWARD(fbody, form, (FILE *file, int flag, const type *text, ...), (file, flag, text, list), text)

PLAIN(printf, fprintf, vfprintf, char, stdout)
PLAIN(wprintf, fwprintf, vfwprintf, wchar_t, stdout)
CHECKED(printf_chk, fprintf_chk, __vfprintf_chk, char)
CHECKED(wprintf_chk, fwprintf_chk, __vfwprintf_chk, wchar_t)
PLAIN(scanf, fscanf, vfscanf, char, stdin)
PLAIN(wscanf, fwscanf, vfwscanf, wchar_t, stdin)
PLAIN(isoc99_scanf, isoc99_fscanf, __isoc99_vfscanf, char, stdin)
PLAIN(isoc99_wscanf, isoc99_fwscanf, __isoc99_vfwscanf, wchar_t, stdin)
PLAIN(isoc23_scanf, isoc23_fscanf, __isoc23_vfscanf, char, stdin)
PLAIN(isoc23_wscanf, isoc23_fwscanf, __isoc23_vfwscanf, wchar_t, stdin)

void vsyslog(int, const char *, va_list);
void __vsyslog_chk(int, int, const char *, va_list);

HIDDEN void us_syslog(int priority, const char *text, ...)
{
    va_list list;

    va_start(list, text);
    vsyslog(priority, text, list);
    va_end(list);
}

HIDDEN void us_syslog_chk(int priority, int flag, const char *text, ...)
{
    va_list list;

    va_start(list, text);
    __vsyslog_chk(priority, flag, text, list);
    va_end(list);
}
