// Proves: a secret comes from where the user says, and only if nobody else can read it; and no message holds it.
#include "transport/rendezvous/secret.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ring/base/descriptor.h"
#include "rondo/error.h"
#include "tests/support/secrets.h"
#include "tests/support/temp_folder.h"

namespace rondo {
namespace {

using testing::make_secret;

constexpr const char* kContent = "0123456789abcdefSECRET";

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Exception& e) {
    CHECK(e.code() == ErrorCode::kInvalid);
    CHECK(std::string(e.what()).find(kContent) == std::string::npos);
    return e.what();
  }
  FAIL("accepted");
  return "";
}

Environment environment_of(const std::string& runtime_folder) {
  return Environment({{"XDG_RUNTIME_DIR", runtime_folder}});
}

TEST_CASE("fault 32: a secret file needs mode 600, this user, 16 bytes at least, and to be a file") {
  const testing::TempFolder folder;
  const Secret secret = read_secret_file(make_secret(folder, "good", kContent));
  CHECK(secret.bytes == kContent);
  CHECK(secret.spans_hosts());
  for (const mode_t mode : {0644, 0640, 0604, 0620, 0601}) {
    const std::string path = make_secret(folder, "open", kContent, mode);
    const std::string message = refusal([&] { read_secret_file(path); });
    CHECK(message.find("chmod 600") != std::string::npos);
    CHECK(message.find(path) != std::string::npos);
  }
  CHECK(read_secret_file(make_secret(folder, "read-only", kContent, 0400)).bytes == kContent);
  CHECK(refusal([&] { read_secret_file(make_secret(folder, "short", std::string(15, 'x'))); }).find("15 bytes") !=
        std::string::npos);
  CHECK(read_secret_file(make_secret(folder, "least", std::string(16, 'x'))).bytes.size() == 16);
  CHECK(read_secret_file(make_secret(folder, "most", std::string(4096, 'x'))).bytes.size() == 4096);
  refusal([&] { read_secret_file(make_secret(folder, "long", std::string(4097, 'x'))); });
  refusal([&] { read_secret_file(make_secret(folder, "empty", "")); });
  CHECK(refusal([&] { read_secret_file(folder.path("none")); }).find("not there") != std::string::npos);
  refusal([&] { read_secret_file("/tmp"); });
  refusal([&] { read_secret_file("/dev/zero"); });
  if (::geteuid() == 0) {
    const std::string path = make_secret(folder, "another's", kContent);
    REQUIRE(::chown(path.c_str(), 65'534, 65'534) == 0);  // not in a sandbox, which has one user: the test is local
    CHECK(refusal([&] { read_secret_file(path); }).find("belongs to user 65534") != std::string::npos);
  }
}

TEST_CASE("a descriptor gives its secret again and again; a closed one, or a pipe that was read, is explained") {
  const Descriptor memory(::memfd_create("secret", MFD_CLOEXEC));
  REQUIRE(::write(memory.get(), kContent, 22) == 22);
  for (int time = 0; time < 3; ++time) CHECK(read_secret_descriptor(memory.get()).bytes == kContent);
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const Descriptor in(ends[0]);
  {
    const Descriptor out(ends[1]);
    REQUIRE(::write(out.get(), kContent, 22) == 22);
  }
  CHECK(read_secret_descriptor(in.get()).bytes == kContent);
  CHECK(refusal([&] { read_secret_descriptor(in.get()); }).find("0 bytes") != std::string::npos);
  CHECK(refusal([&] { read_secret_descriptor(1 << 19); }).find("RONDO_SECRET_FD=524288") != std::string::npos);
}

TEST_CASE("the user's secret is made without a file of another name, which a kill would leave behind") {
  const testing::TempFolder folder;
  const Descriptor news(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  REQUIRE(::inotify_add_watch(news.get(), folder.path().c_str(), IN_CREATE) >= 0);
  user_secret(environment_of(folder.path()));
  alignas(inotify_event) char bytes[4096];
  const ssize_t have = ::read(news.get(), bytes, sizeof bytes);
  std::vector<std::string> made;
  for (ssize_t at = 0; at < have;) {
    const auto* event = reinterpret_cast<const inotify_event*>(bytes + at);
    made.push_back(event->name);
    at += static_cast<ssize_t>(sizeof *event + event->len);
  }
  CHECK(made == std::vector<std::string>{"rondo-secret"});
}

TEST_CASE("the user's own secret is made once, by the first process, in a private folder, with mode 600") {
  const testing::TempFolder folder;
  REQUIRE(::chmod(folder.path().c_str(), 0700) == 0);
  std::vector<std::string> seen(16);
  std::vector<std::thread> threads;
  for (std::string& bytes : seen) {
    threads.emplace_back([&] { bytes = user_secret(environment_of(folder.path())).bytes; });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(seen[0].size() == 32);
  for (const std::string& bytes : seen) CHECK(bytes == seen[0]);
  struct stat info {};
  const std::string path = folder.path() + "/rondo-secret";
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  CHECK(info.st_nlink == 1);  // no other name is left behind
  REQUIRE(::chmod(path.c_str(), 0644) == 0);
  CHECK(refusal([&] { user_secret(environment_of(folder.path())); }).find("chmod 600") != std::string::npos);
}

TEST_CASE("a run-time folder that others can enter is not used") {
  const testing::TempFolder folder;
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  const Secret secret = user_secret(environment_of(folder.path()));
  CHECK(secret.name.find(folder.path()) == std::string::npos);
  CHECK(::access((folder.path() + "/rondo-secret").c_str(), F_OK) != 0);
}

TEST_CASE("which secret counts: the unique id's, none with insecure, the file's, the descriptor's, the user's") {
  const testing::TempFolder folder;
  REQUIRE(::chmod(folder.path().c_str(), 0700) == 0);
  const Environment environment = environment_of(folder.path());
  const RendezvousUrl plain = parse_rendezvous("tcp://a:5");
  const RendezvousUrl unique = parse_rendezvous("unique:a:5:ab000000000000000000000000000001");
  const Descriptor memory(::memfd_create("secret", MFD_CLOEXEC));
  REQUIRE(::write(memory.get(), kContent, 22) == 22);
  Config config;
  CHECK(find_secret(config, plain, environment).source == Secret::Source::kUser);
  CHECK_FALSE(find_secret(config, plain, environment).spans_hosts());
  CHECK(find_secret(config, unique, environment).source == Secret::Source::kUniqueId);
  config.secret_fd = memory.get();
  CHECK(find_secret(config, plain, environment).source == Secret::Source::kDescriptor);
  config.secret_file = make_secret(folder, "file", kContent);
  CHECK(find_secret(config, plain, environment).source == Secret::Source::kFile);
  config.insecure = true;
  CHECK(refusal([&] { find_secret(config, plain, environment); }).find("RONDO_INSECURE=1") != std::string::npos);
  config.secret_file.clear();
  config.secret_fd = -1;
  CHECK_FALSE(find_secret(config, plain, environment).exists());
  CHECK(find_secret(config, unique, environment).source == Secret::Source::kUniqueId);
}

}  // namespace
}  // namespace rondo
