// Shows: sendfile, splice, tee, vmsplice and copy_file_range: bytes that never pass through the program's memory.
// Breaks if: such a call is repeated after a failover: the kernel's offsets have moved already.
#include "guest.h"
#include <sys/sendfile.h>
#include <sys/uio.h>

enum { SIZE = 100000, ROUNDS = 40 };

int main(void)
{
    unsigned char *data = (unsigned char *)malloc(SIZE), *back = (unsigned char *)malloc(SIZE);
    uint64_t digest = 0;

    guest_scratch();
    struct guest_name from = guest_path("from"), to = guest_path("to");
    guest_fill(data, SIZE, 5);
    int in = open(from.s, O_RDWR | O_CREAT, 0600), out = open(to.s, O_RDWR | O_CREAT, 0600), ends[2], second[2];
    CHECK(in >= 0 && out >= 0 && pipe(ends) == 0 && pipe(second) == 0);
    guest_write_all(in, data, SIZE);
    for (int r = 0; r < ROUNDS; r++) {
        off_t offset = 0;
        CHECK(ftruncate(out, 0) == 0 && lseek(out, 0, SEEK_SET) == 0);
        while (offset < SIZE)
            CHECK(sendfile(out, in, &offset, (size_t)(SIZE - offset)) > 0);
        CHECK(pread(out, back, SIZE, 0) == SIZE && memcmp(data, back, SIZE) == 0);

        loff_t at = 1000;
        CHECK(splice(in, &at, ends[1], NULL, 8000, 0) == 8000 && at == 9000);
        CHECK(tee(ends[0], second[1], 8000, 0) == 8000);
        loff_t where = 0;
        CHECK(splice(ends[0], NULL, out, &where, 8000, 0) == 8000 && where == 8000);
        CHECK(pread(out, back, 8000, 0) == 8000 && memcmp(data + 1000, back, 8000) == 0);
        guest_read_all(second[0], back, 8000);
        CHECK(memcmp(data + 1000, back, 8000) == 0);

        struct iovec v = { data + 50, 3000 };
        CHECK(vmsplice(ends[1], &v, 1, 0) == 3000);
        guest_read_all(ends[0], back, 3000);
        CHECK(memcmp(data + 50, back, 3000) == 0);

        loff_t source = 20000, sink = 5;
        CHECK(copy_file_range(in, &source, out, &sink, 30000, 0) == 30000 && source == 50000 && sink == 30005);
        CHECK(pread(out, back, 30000, 5) == 30000 && memcmp(data + 20000, back, 30000) == 0);
        digest = guest_mix(digest ^ guest_digest(back, 30000));
        guest_pause_us(300);
    }
    CHECK(close(in) == 0 && close(out) == 0 && unlink(from.s) == 0 && unlink(to.s) == 0);
    guest_scratch_end();
    printf("digest %016lx\n", (unsigned long)digest);
    return guest_ok();
}
