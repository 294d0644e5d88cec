// Shows: function-local statics raced by many threads: each is constructed once, all wait for it; a throwing one is tried again.
// Breaks if: __cxa_guard_acquire's winner is not replayed, or an aborted construction leaves the guard taken.
#include "guest.h"

namespace {

constexpr int threads = 4, kinds = 24;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
int constructed, thrown;

template <int kind> struct Costly {
    uint64_t value;
    Costly()
    {
        ZERO(pthread_mutex_lock(&lock));
        bool first_of_throwing = kind % 6 == 0 && thrown == kind / 6;
        if (first_of_throwing)
            thrown++;
        else
            constructed++;
        ZERO(pthread_mutex_unlock(&lock));
        guest_pause_us(1000);
        if (first_of_throwing)
            throw kind;
        value = guest_mix(kind);
    }
};

template <int kind> uint64_t get()
{
    static Costly<kind> one;
    return one.value;
}

template <int kind> uint64_t all()
{
    uint64_t value;
    for (;;) {
        try {
            value = get<kind>();
            break;
        } catch (int which) {
            CHECK(which == kind);
        }
    }
    CHECK(value == guest_mix(kind));
    if constexpr (kind + 1 < kinds)
        return value ^ all<kind + 1>();
    return value;
}

void *run(void *) { return guest_ptr(static_cast<long>(all<0>() >> 8)); }

} // namespace

int main()
{
    pthread_t t[threads];
    long value = 0;

    for (auto &thread : t)
        thread = guest_start(run, nullptr);
    for (auto &thread : t) {
        long got = guest_num(guest_join(thread));
        CHECK(value == 0 || value == got);
        value = got;
    }
    printf("constructed %d, thrown %d, value %014lx\n", constructed, thrown, static_cast<unsigned long>(value));
    CHECK(constructed == kinds && thrown == kinds / 6);
    return guest_ok();
}
