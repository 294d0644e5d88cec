// Shows: streams of other kinds: fdopen, freopen, memory streams, cookies, pushed-back characters, getdelim, setvbuf, wide characters, dprintf.
// Breaks if: a stream's buffer and its file's offset part at a failover, or a stream of the program's own functions is passed over.
#include "guest.h"
#include <locale.h>
#include <wchar.h>

enum { ROUNDS = 40 };

static ssize_t say(void *cookie, const char *text, size_t length)
{
    long *count = (long *)cookie;

    *count += (long)length;
    guest_now_ns(CLOCK_MONOTONIC);
    return text ? (ssize_t)length : 0;
}

int main(void)
{
    long through = 0, sum = 0;

    CHECK(setlocale(LC_ALL, "C.UTF-8"));
    guest_scratch();
    struct guest_name name = guest_path("stream");
    for (int r = 0; r < ROUNDS; r++) {
        char *text = NULL, *line = NULL, buffer[32];
        size_t length = 0, room = 0;
        FILE *memory = open_memstream(&text, &length);
        CHECK(memory && fprintf(memory, "%d;%s;%5.2f", r, "grün", r / 4.0) > 0 && fclose(memory) == 0);
        memory = fmemopen(text, length, "r");
        CHECK(memory && getdelim(&line, &room, ';', memory) > 0 && atoi(line) == r);
        CHECK(getdelim(&line, &room, ';', memory) == 6 && fclose(memory) == 0);
        free(text);

        int fd = open(name.s, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        FILE *file = fdopen(fd, "w+");
        CHECK(file && setvbuf(file, buffer, _IOFBF, sizeof buffer) == 0);
        for (int i = 0; i < 30; i++)
            CHECK(fprintf(file, "line %d of %d\n", i, r) > 0);
        CHECK(fseek(file, 0, SEEK_SET) == 0 && getc(file) == 'l' && ungetc('L', file) == 'L' && getc(file) == 'L');
        CHECK(getline(&line, &room, file) == (r < 10 ? 11 : 12) && ftell(file) == (r < 10 ? 12 : 13));
        int i = -1, of = -1;
        for (int n = 1; n < 30; n++)
            CHECK(fscanf(file, "line %d of %d\n", &i, &of) == 2 && i == n && of == r);
        CHECK(getc(file) == EOF && feof(file) && !ferror(file));
        clearerr(file);
        CHECK(fseeko(file, 5, SEEK_SET) == 0 && fputs("zero", file) >= 0 && fflush(file) == 0);
        CHECK(pread(fd, buffer, 9, 0) == 9 && memcmp(buffer, "line zero", 9) == 0);
        file = freopen(name.s, "a", file);
        CHECK(file && fwrite("end", 1, 3, file) == 3 && fclose(file) == 0);
        free(line);

        file = fopen(name.s, "r+e");
        CHECK(file && fseek(file, -3, SEEK_END) == 0 && fwide(file, 1) > 0 && fgetwc(file) == L'e' && fgetwc(file) == L'n');
        CHECK(fclose(file) == 0);
        FILE *own = fopencookie(&through, "w", (cookie_io_functions_t){ .write = say });
        CHECK(own && fprintf(own, "%100d", r) == 100 && fclose(own) == 0 && through == 100L * (r + 1));
        sum += of;
        guest_pause_us(600);
    }
    CHECK(unlink(name.s) == 0);
    guest_scratch_end();
    printf("sum %ld through %ld\n", sum, through);
    return guest_ok();
}
