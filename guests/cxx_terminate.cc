// Shows: an exception that nobody catches in a thread: the terminate handler says what it was, and the program ends by SIGABRT.
// Breaks if: the end by abort() in one thread is taken for a death of the primary while others work.
// kit: signal 6
// kit: allow promoted abort is a crash like any other: the standby takes over, and comes to the same abort
// kit: allow unprotected as above
// kit: no-kill the guest dies by itself, and a kill could not be told from that
#include "guest.h"
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

std::mutex lock;
long worked;

[[noreturn]] void last_words()
{
    try {
        std::rethrow_exception(std::current_exception());
    } catch (const std::exception &error) {
        std::printf("uncaught: %s\nok\n", error.what());
        std::fflush(stdout);
    }
    std::abort();
}

void work(bool throws)
{
    for (int r = 0;; r++) {
        {
            std::lock_guard<std::mutex> guard(lock);
            worked++;
        }
        guest_pause_us(500);
        if (throws && r == 60)
            throw std::logic_error("enough");
    }
}

} // namespace

int main()
{
    std::vector<std::thread> all;

    std::set_terminate(last_words);
    for (int i = 0; i < 3; i++)
        all.emplace_back(work, i == 1);
    for (auto &thread : all)
        thread.join();
    return 1;
}
