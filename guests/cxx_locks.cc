// Shows: C++ locks that wait for a time or for several at once: timed, recursive and shared timed mutexes, scoped_lock, condition_variable_any, call_once that throws.
// Breaks if: a lock that libstdc++ reaches by another of libc's functions is behind every door, or a failed once counts as done.
#include "guest.h"
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;

constexpr int threads = 4, rounds = 60;

std::timed_mutex timed;
std::recursive_timed_mutex recursive;
std::shared_timed_mutex shared;
std::mutex left, right;
std::condition_variable_any any;
long turn, count, moved[2], tries;

void work(int me)
{
    for (int r = 0; r < rounds; r++) {
        {
            std::unique_lock<std::shared_timed_mutex> lock(shared);
            any.wait(lock, [me] { return turn % threads == me; });
            turn++;
            any.notify_all();
        }
        {
            std::scoped_lock both(me % 2 ? left : right, me % 2 ? right : left);
            moved[0]++;
            moved[1] += 2;
        }
        {
            std::lock_guard<std::recursive_timed_mutex> outer(recursive);
            CHECK(recursive.try_lock_for(1s));
            count++;
            recursive.unlock();
        }
        if (timed.try_lock_until(std::chrono::steady_clock::now() + 30s)) {
            tries++;
            timed.unlock();
        }
        if (shared.try_lock_shared_for(30s)) {
            CHECK(turn > 0);
            shared.unlock_shared();
        }
        if (r % 8 == 0)
            guest_pause_us(500);
    }
}

} // namespace

int main()
{
    std::vector<std::thread> all;
    std::once_flag once;
    int attempts = 0;
    bool failed = false;

    for (int i = 0; i < 3; i++)
        try {
            std::call_once(once, [&attempts] {
                if (++attempts < 3)
                    throw std::runtime_error("not yet");
            });
        } catch (const std::runtime_error &) {
            failed = true;
        }
    CHECK(attempts == 3 && failed);
    CHECK(timed.try_lock());
    std::thread([] { CHECK(!timed.try_lock_for(300us) && !timed.try_lock()); }).join();
    timed.unlock();
    for (int i = 0; i < threads; i++)
        all.emplace_back([i] {
            work(i);
        });
    for (auto &thread : all)
        thread.join();
    CHECK(turn == threads * rounds && count == turn && tries == turn && moved[0] == turn && moved[1] == 2 * turn);
    std::printf("turns %ld\n", turn);
    return guest_ok();
}
