// Shows: std::filesystem and streams: folders made, copied, walked and removed, files read and written through stream buffers, errors by code.
// Breaks if: a stream buffer and its file part at a failover, or a walk shows what only the other copy has made.
#include "guest.h"
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;

int main()
{
    long lines = 0;

    guest_scratch();
    const fs::path base(guest_scratch_dir);
    for (int r = 0; r < 16; r++) {
        std::error_code error;
        const fs::path from = base / "from", to = base / "to";
        CHECK(fs::create_directories(from / "a" / "b") && !fs::create_directory(from, error) && !error);
        for (int f = 0; f < 4; f++) {
            std::ofstream out(from / "a" / ("file" + std::to_string(f)));
            for (int i = 0; i <= f * 50; i++)
                out << "round " << r << " line " << i << '\n';
            CHECK(out.good());
        }
        fs::create_symlink("a/file1", from / "link");
        fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
        CHECK(fs::is_symlink(to / "link") && fs::read_symlink(to / "link") == "a/file1");
        CHECK(fs::equivalent(from / "link", from / "a" / "file1") && fs::file_size(to / "a" / "file2") > 1000);
        fs::rename(to / "a" / "file3", to / "moved");
        fs::resize_file(to / "a" / "file0", 5);
        fs::permissions(to / "moved", fs::perms::owner_read);
        CHECK(fs::status(to / "moved").permissions() == fs::perms::owner_read);

        std::vector<std::string> found;
        for (const auto &entry : fs::recursive_directory_iterator(to))
            found.push_back(entry.path().lexically_relative(to).string());
        std::sort(found.begin(), found.end());
        const std::vector<std::string> wanted{ "a", "a/b", "a/file0", "a/file1", "a/file2", "link", "moved" };
        CHECK(found == wanted);

        std::fstream file(to / "a" / "file2", std::ios::in | std::ios::out);
        std::string line;
        for (int i = 0; i <= 100; i++) {
            std::ostringstream expected;
            expected << "round " << r << " line " << i;
            CHECK(std::getline(file, line) && line == expected.str());
            lines++;
        }
        file.clear();
        file.seekp(6);
        file << 'X';
        file.seekg(0);
        CHECK(std::getline(file, line) && line[6] == 'X');
        file.close();
        CHECK(!fs::remove(to, error) && error == std::errc::directory_not_empty);
        CHECK(!std::ifstream(base / "nothing").is_open() && fs::file_size(base / "nothing", error) == static_cast<std::uintmax_t>(-1));
        CHECK(error == std::errc::no_such_file_or_directory);
        CHECK(fs::remove_all(to) == 8 && fs::remove_all(from) == 8);
        CHECK(fs::is_empty(base) && fs::space(base).capacity > 0);
        guest_pause_us(2000);
    }
    guest_scratch_end();
    std::printf("lines %ld\n", lines);
    return guest_ok();
}
