// Shows: exceptions inside threads, carried to another thread by exception_ptr, and destructors run by pthread_exit's unwind.
// Breaks if: a frame of the runtime below guest code cannot be unwound: std::terminate instead of a catch.
#include "guest.h"
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

constexpr int rounds = 60;
std::mutex lock;
long destroyed;

struct Counted {
    ~Counted()
    {
        std::lock_guard hold(lock);
        destroyed++;
    }
};

void deep(int depth, int round)
{
    Counted here;
    if (depth == 0)
        throw std::runtime_error("round " + std::to_string(round));
    deep(depth - 1, round);
}

void *leave(void *)
{
    Counted here;
    pthread_exit(guest_ptr(5));
}

} // namespace

int main()
{
    long caught = 0;

    for (int r = 0; r < rounds; r++) {
        std::exception_ptr carried;
        std::thread thrower([&] {
            try {
                deep(6, r);
            } catch (const std::runtime_error &) {
                carried = std::current_exception();
            }
        });
        thrower.join();
        try {
            std::rethrow_exception(carried);
        } catch (const std::exception &error) {
            CHECK(error.what() == "round " + std::to_string(r));
            caught++;
        }
        CHECK(guest_num(guest_join(guest_start(leave, nullptr))) == 5);
        guest_pause_us(300);
    }
    printf("caught %ld, destroyed %ld\n", caught, destroyed);
    CHECK(caught == rounds && destroyed == rounds * 8);
    return guest_ok();
}
