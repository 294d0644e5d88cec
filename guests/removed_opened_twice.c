// Shows: a file that was opened twice, and removed: what is written by one descriptor is read by the other.
// Breaks if: the two are two files in a copy, or in what goes on from a checkpoint.
#include "guest.h"

enum { ROUNDS = 100 };

int main(void)
{
    uint64_t digest = 0;

    guest_scratch();
    struct guest_name name = guest_path("file");
    int out = open(name.s, O_WRONLY | O_CREAT | O_APPEND, 0600), in = open(name.s, O_RDONLY);
    CHECK(out >= 0 && in >= 0 && unlink(name.s) == 0);
    for (uint64_t r = 0; r < ROUNDS; r++) {
        uint64_t record[3] = { r, guest_mix(r), r * r }, got[3];
        CHECK(write(out, record, sizeof record) == sizeof record);
        CHECK(read(in, got, sizeof got) == sizeof got && memcmp(got, record, sizeof got) == 0);
        digest = guest_mix(digest ^ got[1]);
        guest_pause_us(1500);
    }
    CHECK(lseek(in, 0, SEEK_END) == ROUNDS * 24 && close(in) == 0 && close(out) == 0);
    guest_scratch_end();
    printf("digest %016llx\n", (unsigned long long)digest);
    return guest_ok();
}
