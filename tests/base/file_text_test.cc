#include "ring/base/file_text.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/support/temp_folder.h"

namespace rondo {
namespace {

TEST_CASE("file_text: every byte of a file, and none of what is not there or cannot be read") {
  const testing::TempFolder folder;
  const std::string bytes("a\0\r\n\xff", 5);
  std::ofstream(folder.path("file"), std::ios::binary) << bytes;
  std::ofstream(folder.path("empty"));
  CHECK(file_text(folder.path("file")) == bytes);
  CHECK(file_text(folder.path("empty")).empty());
  CHECK(file_text(folder.path("nowhere")).empty());
  CHECK(file_text(folder.path()).empty());       // reading a folder fails
  CHECK(!file_text("/proc/self/stat").empty());  // its size is said to be 0
}

}  // namespace
}  // namespace rondo
