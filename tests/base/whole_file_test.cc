#include "ring/base/whole_file.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <iterator>
#include <string>

#include "ring/base/file_text.h"
#include "rondo/error.h"
#include "tests/support/temp_folder.h"

namespace rondo {
namespace {

size_t files_in(const std::string& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

std::string refusal(const std::string& path, const std::string& text) {
  try {
    replace_file(path, text);
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("a file is replaced, and nothing is left beside it") {
  const testing::TempFolder directory;
  const std::string path = directory.path() + "/rows.json";
  replace_file(path, "old");
  replace_file(path, "new");
  CHECK(file_text(path) == "new");
  CHECK(files_in(directory.path()) == 1);
}

TEST_CASE("a file that cannot be written whole stays as it was, and the error says why") {
  const testing::TempFolder directory;
  const std::string path = directory.path() + "/rows.json";
  replace_file(path, "old");
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string why = refusal(path, std::string(1 << 20, 'x'));
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK(why == "cannot write " + path + ": File too large");
  CHECK(file_text(path) == "old");
  CHECK(files_in(directory.path()) == 1);
  CHECK(refusal(directory.path() + "/none/rows.json", "x") ==
        "cannot write " + directory.path() + "/none/rows.json: No such file or directory");
}

TEST_CASE("what is no regular file is written as it is: a link keeps pointing, a device stays one") {
  const testing::TempFolder directory;
  const std::string path = directory.path() + "/rows.json", link = directory.path() + "/link";
  replace_file(path, "old");
  std::filesystem::create_symlink(path, link);
  replace_file(link, "new");
  CHECK(std::filesystem::is_symlink(link));
  CHECK(file_text(path) == "new");
  replace_file("/dev/null", "x");
  CHECK(std::filesystem::is_character_file("/dev/null"));
  // So few bytes are written when the file is closed.
  CHECK(refusal("/dev/full", "x") == "cannot write /dev/full: No space left on device");
}

}  // namespace
}  // namespace rondo
