#include "transport/store/file_store.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "ring/base/file_text.h"
#include "rondo/error.h"
#include "tests/rendezvous/test_jobs.h"
#include "tests/support/child.h"
#include "tests/support/errors.h"

namespace rondo {
namespace {

using test::in_ms;
using test::soon;
using testing::Child;
using testing::Parent;

// A process that opens the file, puts k=v and is killed where it stands.
void crash_with_file(const std::string& path, const std::string& job_id) {
  Child child([&](Parent&) {
    FileStore store(path, job_id, "end", soon());
    store.put("k", "v", soon());
    return kill(getpid(), SIGKILL);
  });
  REQUIRE(child.wait() == -SIGKILL);
}

Error refusal(const std::string& path, const std::string& job_id) {
  return testing::error_of([&] { FileStore(path, job_id, "end", in_ms(200)); });
}

TEST_CASE("file store: what a crashed run left, of whatever job, does not reach the next") {
  test::Folder folder;
  std::string path = folder.path("f");
  for (const char* job : {"same", "other"}) {
    crash_with_file(path, job);
    REQUIRE(file_text(path).find("v") != std::string::npos);
    FileStore store(path, "same", "end", soon());
    CHECK_FALSE(store.try_get("k", soon()));
  }
}

TEST_CASE("file store: a crash at any byte of a record leaves the records before it") {
  test::Folder folder;
  std::string path = folder.path("f");
  FileStore first(path, "j", "end", soon());
  first.put("a", "1", soon());
  size_t whole = file_text(path).size();
  first.put("b", "2", soon());
  std::string all = file_text(path);
  for (size_t cut = whole; cut < all.size(); ++cut) {
    CAPTURE(cut);
    REQUIRE(truncate(path.c_str(), static_cast<off_t>(cut)) == 0);
    FileStore second(path, "j", "end", soon());
    CHECK(second.get("a", soon()) == "1");
    CHECK_FALSE(second.try_get("b", soon()));
    CHECK(file_text(path).size() == whole);  // the rest is cut off
    second.put("c", "3", soon());
    FileStore third(path, "j", "end", soon());
    CHECK(third.get("c", soon()) == "3");
    std::ofstream(path, std::ios::binary | std::ios::trunc) << all;
  }
  // A flipped bit counts as the end, too.
  for (size_t at = whole; at < all.size(); ++at) {
    std::string flipped = all;
    flipped[at] = static_cast<char>(flipped[at] ^ 4);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << flipped;
    FileStore second(path, "j", "end", soon());
    CHECK_FALSE(second.try_get("b", soon()));
    CHECK(second.get("a", soon()) == "1");
  }
}

TEST_CASE("file store: a living run of another job keeps its file, with both jobs named") {
  test::Folder folder;
  std::string path = folder.path("f");
  FileStore mine(path, "mine", "end", soon());
  mine.put("k", "v", soon());
  Error error = refusal(path, "theirs");
  CHECK(error.code == ErrorCode::kBootstrap);
  CHECK(error.message.find("\"mine\"") != std::string::npos);
  CHECK(error.message.find("\"theirs\"") != std::string::npos);
  CHECK(mine.get("k", soon()) == "v");
}

TEST_CASE("file store: other files, links and directories are refused and left as they were") {
  test::Folder folder;
  std::string letter = folder.path("letter");
  std::ofstream(letter) << "dear reader";
  CHECK(refusal(letter, "j").message.find("something else") != std::string::npos);
  CHECK(file_text(letter) == "dear reader");
  REQUIRE(symlink(letter.c_str(), folder.path("link").c_str()) == 0);
  CHECK(refusal(folder.path("link"), "j").code == ErrorCode::kBootstrap);
  CHECK(refusal(folder.path(""), "j").code == ErrorCode::kBootstrap);
  CHECK(refusal(folder.path("no/such/folder"), "j").code == ErrorCode::kBootstrap);
}

TEST_CASE("file store: the last to leave removes the file, and nobody before") {
  test::Folder folder;
  std::string path = folder.path("f");
  auto a = std::make_unique<FileStore>(path, "j", "end", soon());
  auto b = std::make_unique<FileStore>(path, "j", "end", soon());
  b->put("k", "v", soon());
  b.reset();
  CHECK(std::filesystem::exists(path));
  CHECK(a->get("k", soon()) == "v");
  a.reset();
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("file store: after the last key the name is free, while those inside go on") {
  test::Folder folder;
  std::string path = folder.path("f");
  FileStore old_store(path, "j", "end", soon());
  FileStore old_other(path, "j", "end", soon());
  old_store.put("k", "old", soon());
  old_store.put("end", "1", soon());
  FileStore fresh(path, "j", "end", soon());
  CHECK_FALSE(fresh.try_get("k", soon()));
  CHECK(old_other.get("end", soon()) == "1");
  old_other.put("k", "older", soon());
  CHECK(old_store.get("k", soon()) == "older");
  CHECK_FALSE(fresh.try_get("k", soon()));
}

TEST_CASE("file store: what its map has no room for is refused before it is written, and others read the file on") {
  constexpr size_t kMost = 4096;
  test::Folder folder;
  const std::string path = folder.path("f");
  FileStore first(path, "j", "end", soon(), kMost), other(path, "j", "end", soon(), kMost);
  const auto left = [&] { return kMost - std::filesystem::file_size(path); };
  first.put("k", std::string(left() - 1000, 'k'), soon());
  // The file has room for this record, to the byte. An entry of the map takes more than its record.
  const std::string rest(left() - encode_record({RecordKind::kPut, "last", ""}).size(), 'x');
  const uintmax_t before = std::filesystem::file_size(path);
  const Error full = testing::error_of([&] { first.put("last", rest, soon()); });
  CHECK(full.code == ErrorCode::kBootstrap);
  CHECK(full.message.find("the store is full: \"last\" would take it beyond 4096 bytes") != std::string::npos);
  CHECK(std::filesystem::file_size(path) == before);
  CHECK(other.get("k", soon()).front() == 'k');
  CHECK_FALSE(other.try_get("last", soon()));
  other.put("small", "there is room for it", soon());
  CHECK(first.get("small", soon()) == "there is room for it");
}

TEST_CASE("file store: eight processes add 50 times each, and no addition is lost") {
  test::Folder folder;
  std::string path = folder.path("f");
  FileStore store(path, "j", "end", soon());
  std::vector<Child> children;
  for (int i = 0; i < 8; ++i) {
    children.emplace_back([&](Parent&) {
      try {
        FileStore own(path, "j", "end", soon());
        for (int k = 0; k < 50; ++k) own.add("n", 1, soon());
        own.add("done", 1, soon());
        own.get("stop", soon());
        return 0;
      } catch (const std::exception&) {
        return 1;
      }
    });
  }
  for (auto end = soon(); store.add("done", 0, soon()) < 8 && std::chrono::steady_clock::now() < end;) {
  }
  CHECK(store.get("n", soon()) == "400");
  store.put("stop", "1", soon());
  for (Child& child : children) CHECK(child.wait() == 0);
}

TEST_CASE("file store: in a forked child the parent's object is refused, and the parent goes on") {
  test::Folder folder;
  FileStore store(folder.path("f"), "j", "end", soon());
  store.put("k", "v", soon());
  Child child([&](Parent&) {
    return testing::code_of([&] { store.put("k", "child", soon()); }) == ErrorCode::kInvalid ? 0 : 1;
  });
  CHECK(child.wait() == 0);
  CHECK(store.get("k", soon()) == "v");
}

}  // namespace
}  // namespace rondo
