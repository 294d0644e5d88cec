// Shows: std::async, promises, packaged tasks and shared futures: values and exceptions come from other threads, deferred ones from the caller.
// Breaks if: the state that a promise and its future share is woken by other means than the log orders, or an exception is lost on its way.
// kit: allow unprotected libstdc++ waits by futex calls of its own: turns begin with a new standby
#include "guest.h"
#include <chrono>
#include <future>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int rounds = 40;

long sum_of(std::vector<long> numbers)
{
    guest_pause_us(200);
    if (numbers.empty())
        throw std::invalid_argument("nothing to add");
    return std::accumulate(numbers.begin(), numbers.end(), 0L);
}

} // namespace

int main()
{
    long total = 0;

    for (int r = 0; r < rounds; r++) {
        auto there = std::async(std::launch::async, sum_of, std::vector<long>{ r, r + 1, r + 2 });
        auto nothing = std::async(std::launch::async, sum_of, std::vector<long>{});
        auto later = std::async(std::launch::deferred, [r] { return std::this_thread::get_id() == std::thread::id() ? -1 : r; });
        CHECK(later.wait_for(std::chrono::seconds(0)) == std::future_status::deferred);

        std::promise<std::string> promise;
        std::shared_future<std::string> word = promise.get_future().share();
        std::vector<std::thread> readers;
        std::vector<std::size_t> lengths(3);
        for (int i = 0; i < 3; i++)
            readers.emplace_back([word, &lengths, i] { lengths[i] = word.get().size() + i; });
        CHECK(word.wait_for(std::chrono::microseconds(50)) == std::future_status::timeout);
        promise.set_value(std::string(10 + r, 'x'));
        for (auto &reader : readers)
            reader.join();
        for (int i = 0; i < 3; i++)
            CHECK(lengths[i] == static_cast<std::size_t>(10 + r + i));

        std::packaged_task<long(long)> task([](long n) { return n * n; });
        auto square = task.get_future();
        std::thread runner(std::move(task), r);
        std::future<void> broken;
        {
            std::promise<void> dropped;
            broken = dropped.get_future();
        }
        bool is_broken = false, is_empty = false;
        try {
            broken.get();
        } catch (const std::future_error &error) {
            is_broken = error.code() == std::future_errc::broken_promise;
        }
        try {
            nothing.get();
        } catch (const std::invalid_argument &error) {
            is_empty = std::string(error.what()) == "nothing to add";
        }
        CHECK(is_broken && is_empty);
        total += there.get() + later.get() + square.get();
        runner.join();
    }
    std::printf("total %ld\n", total);
    return guest_ok();
}
