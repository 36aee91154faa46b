// What a setting's folder holds, by accident or by another user's hand, is neither followed nor overwritten. Needs root
// to make another user's folder.
#include "ring/base/output_folder.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "ring/base/file_text.h"
#include "rondo/error.h"
#include "tests/support/temp_folder.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using Missing = OutputFolder::Missing;

constexpr uid_t kStranger = 65534;
constexpr const char* kPrecious = "precious words";

void write_file(const OutputFolder& folder, const std::string& text) {
  const Descriptor file = folder.create("file", 0666);
  REQUIRE(::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  folder.publish("file");
}

mode_t mode_of(const std::string& path) {
  struct stat facts {};
  REQUIRE(::lstat(path.c_str(), &facts) == 0);
  return facts.st_mode;
}

void give_away(const std::string& path) {
  REQUIRE(::geteuid() == 0);
  REQUIRE(::lchown(path.c_str(), kStranger, kStranger) == 0);
}

TEST_CASE("output folder: links and other files under the names of its files are replaced, and never opened") {
  const testing::TempFolder outside, folder;
  const std::string precious = outside.path("precious");
  std::ofstream(precious) << kPrecious;
  for (const char* name : {"file", "file.part"}) {
    for (const bool hard : {false, true}) {
      CAPTURE(name);
      CAPTURE(hard);
      const std::string link = folder.path(name);
      fs::remove(link);
      hard ? fs::create_hard_link(precious, link) : fs::create_symlink(precious, link);
      write_file(OutputFolder("X", folder.path(), Missing::kRefuse), "new");
      CHECK(file_text(precious) == kPrecious);
      CHECK(file_text(folder.path("file")) == "new");
      CHECK(S_ISREG(mode_of(folder.path("file"))));
      CHECK_FALSE(fs::exists(folder.path("file.part")));
    }
  }
  REQUIRE(::mkfifo(folder.path("file.part").c_str(), 0666) == 0);
  write_file(OutputFolder("X", folder.path(), Missing::kRefuse), "newer");
  CHECK(file_text(folder.path("file")) == "newer");
}

TEST_CASE("output folder: it stays the same folder where its path comes to lead elsewhere") {
  const testing::TempFolder outside, folder;
  std::ofstream(outside.path("file")) << kPrecious;
  const OutputFolder opened("X", folder.path("a"), Missing::kMake);
  fs::rename(folder.path("a"), folder.path("b"));
  fs::create_directory_symlink(outside.path(), folder.path("a"));
  write_file(opened, "new");
  CHECK(file_text(outside.path("file")) == kPrecious);
  CHECK(file_text(folder.path("b/file")) == "new");
}

TEST_CASE("output folder: a stranger's where everybody may write is refused, and so is a stranger's link") {
  const testing::TempFolder folder;
  const auto made = [&](const char* name, mode_t mode, bool strangers) {
    const std::string path = folder.path(name);
    fs::create_directory(path);
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    if (strangers) give_away(path);
    return path;
  };
  const std::string trap = made("trap", 0777, true);
  CHECK(OutputFolder::problem(trap, Missing::kMake).find("belongs to user 65534") != std::string::npos);
  CHECK_THROWS_WITH_AS(OutputFolder("X", trap + "/", Missing::kMake),
                       doctest::Contains(("X: " + trap + ": it").c_str()), Exception);
  CHECK(OutputFolder::problem(made("sticky trap", 01777, true), Missing::kMake) != "");
  for (const std::string& fine : {made("own", 0777, false), made("shared", 01777, false), made("theirs", 0755, true)}) {
    CAPTURE(fine);
    CHECK(OutputFolder::problem(fine, Missing::kMake) == "");
    const std::string link = fine + " by link";
    fs::create_directory_symlink(fine, link);
    CHECK(OutputFolder::problem(link, Missing::kMake) == "");
    give_away(link);
    CHECK(OutputFolder::problem(link + "/", Missing::kMake).find("it is a link of user 65534") != std::string::npos);
  }
}

TEST_CASE("output folder: what is wrong is found without making anything") {
  const testing::TempFolder folder;
  std::ofstream(folder.path("file")) << "x";
  CHECK(OutputFolder::problem(folder.path("new"), Missing::kMake) == "");
  CHECK_FALSE(fs::exists(folder.path("new")));
  CHECK(OutputFolder::problem(folder.path("new"), Missing::kRefuse) == "No such file or directory");
  CHECK(OutputFolder::problem(folder.path("new/er"), Missing::kMake) == "No such file or directory");
  CHECK(OutputFolder::problem(folder.path("file"), Missing::kMake) == "Not a directory");
}

}  // namespace
}  // namespace rondo
