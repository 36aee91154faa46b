#include "transport/rendezvous/meeting_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "ring/base/descriptor.h"
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

TEST_CASE("meeting file: what rank 0 has said is read while it lives, and the file ends with it") {
  const test::Folder folder;
  const std::string path = folder.path("f");
  CHECK(said_in_file(path) == "");
  auto file = std::make_unique<MeetingFile>(path);
  REQUIRE(file->lock(soon()));
  CHECK(said_in_file(path) == "");
  file->say("here");
  CHECK(said_in_file(path) == "here");
  file.reset();
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("meeting file: what a process that was killed has left says nothing, and the next rank 0 begins anew") {
  const test::Folder folder;
  const std::string path = folder.path("f");
  Child child([&](Parent&) {
    MeetingFile file(path);
    if (!file.lock(soon())) return 1;
    file.say("a longer text than that of the next one");
    return kill(getpid(), SIGKILL);
  });
  REQUIRE(child.wait() == -SIGKILL);
  REQUIRE(file_text(path).find("longer") != std::string::npos);
  CHECK(said_in_file(path) == "");
  MeetingFile file(path);
  REQUIRE(file.lock(soon()));
  file.say("next");
  CHECK(said_in_file(path) == "next");
}

TEST_CASE("meeting file: what was left is not the word of a rank 0 that has locked the file and not yet written") {
  const test::Folder folder;
  const std::string path = folder.path("f"), left = folder.path("left");
  MeetingFile file(path);
  REQUIRE(file.lock(soon()));
  file.say("left");
  std::filesystem::copy_file(path, left);
  const Descriptor next(::open(left.c_str(), O_RDWR | O_CLOEXEC));
  struct flock first_byte {};
  first_byte.l_type = F_WRLCK;
  first_byte.l_whence = SEEK_SET;
  first_byte.l_len = 1;
  REQUIRE(::fcntl(next.get(), F_OFD_SETLK, &first_byte) == 0);
  CHECK_FALSE(MeetingFile(left).lock(in_ms(0)));
  CHECK(said_in_file(left) == "");
}

TEST_CASE("meeting file: a second rank 0 has the file once the first lets go of it, and not before") {
  const test::Folder folder;
  const std::string path = folder.path("f");
  auto first = std::make_unique<MeetingFile>(path);
  MeetingFile second(path);
  REQUIRE(first->lock(soon()));
  first->say("first");
  CHECK_FALSE(second.lock(in_ms(50)));
  CHECK(said_in_file(path) == "first");
  first.reset();
  REQUIRE(second.lock(soon()));
  second.say("second");
  CHECK(said_in_file(path) == "second");
}

TEST_CASE("meeting file: a child made by fork keeps neither the lock nor the file") {
  const test::Folder folder;
  const std::string path = folder.path("f");
  auto file = std::make_unique<MeetingFile>(path);
  REQUIRE(file->lock(soon()));
  file->say("here");
  Child child([&](Parent& test) {
    file.reset();
    test.say("ended");
    test.await();
    return 0;
  });
  REQUIRE(child.hear() == "ended");
  CHECK(said_in_file(path) == "here");
  file.reset();
  MeetingFile next(path);
  CHECK(next.lock(in_ms(200)));
  child.tell("end");
  CHECK(child.wait() == 0);
}

TEST_CASE("meeting file: other files, links and directories are refused and left as they were") {
  const test::Folder folder;
  const std::string letter = folder.path("letter");
  std::ofstream(letter) << "dear reader";
  REQUIRE(symlink(letter.c_str(), folder.path("link").c_str()) == 0);
  const auto refusals = [](const std::string& path) {
    return testing::error_of([&] { MeetingFile file(path); }).message + "; " +
           testing::error_of([&] { said_in_file(path); }).message;
  };
  const std::string refusal = "the meeting file " + letter +
                              " cannot be used: it holds something else; Rondo leaves it alone; set "
                              "RONDO_RENDEZVOUS=file:///path to another one, equal on all ranks";
  CHECK(refusals(letter) == refusal + "; " + refusal);
  CHECK(file_text(letter) == "dear reader");
  for (const std::string& path : {folder.path("link"), folder.path(""), folder.path("no/such/folder")}) {
    CHECK(testing::code_of([&] { MeetingFile file(path); }) == ErrorCode::kBootstrap);
    CHECK(testing::code_of([&] { said_in_file(path); }) == ErrorCode::kBootstrap);
  }
}

}  // namespace
}  // namespace rondo
