// Shows: std::thread, mutex, condition_variable (wait, wait_for), shared_mutex, call_once, thread_local destructors.
// Breaks if: libstdc++ reaches pthreads on a way that the exports do not cover.
#include "guest.h"
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

namespace {

constexpr int workers = 3, rounds = 60;
std::mutex lock;
std::condition_variable turned;
std::shared_mutex shared;
std::once_flag once;
int turn, prepared, farewells;
uint64_t trail = 1;

struct Farewell {
    ~Farewell()
    {
        std::lock_guard hold(lock);
        farewells++;
    }
    void touch() {}
};
thread_local Farewell farewell;

void work(int me)
{
    farewell.touch();
    for (int r = 0; r < rounds; r++) {
        std::call_once(once, [] { prepared++; });
        std::unique_lock hold(lock);
        turned.wait(hold, [&] { return turn == me; });
        {
            std::unique_lock writing(shared);
            trail = guest_mix(trail + static_cast<uint64_t>(me));
        }
        turn = (me + 1) % workers;
        turned.notify_all();
        hold.unlock();
        std::shared_lock reading(shared);
        CHECK(trail != 0);
        reading.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
}

} // namespace

int main()
{
    std::vector<std::thread> threads;
    for (int i = 0; i < workers; i++)
        threads.emplace_back(work, i);
    for (auto &thread : threads)
        thread.join();
    std::condition_variable never;
    std::unique_lock hold(lock);
    CHECK(!never.wait_for(hold, std::chrono::microseconds(500), [] { return false; }));
    hold.unlock();
    printf("trail %016lx, prepared %d, farewells %d\n", static_cast<unsigned long>(trail), prepared, farewells);
    CHECK(prepared == 1 && farewells == workers);
    return guest_ok();
}
