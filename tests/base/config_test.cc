#include "rondo/config.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ring/base/json_text.h"
#include "rondo/error.h"

namespace rondo {
namespace {

// Sets variables for one test and takes them away again.
class Variables {
 public:
  void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }
  ~Variables() {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }

 private:
  std::vector<std::string> names_;
};

std::string failure(const std::string& name, const std::string& value) {
  Variables variables;
  variables.set(name, value);
  try {
    Config::from_environment();
  } catch (const Exception& e) {
    CHECK(e.code() == ErrorCode::kInvalid);
    return e.what();
  }
  return "";
}

struct Sample {
  const char* name;
  const char* value;  // allowed, and not the default
  const char* wrong;  // not allowed
  bool shared;
};

// Every variable, so that a field that is added without its variable (or the other way round) shows up here.
const Sample kSamples[] = {
    {"RONDO_START_TIMEOUT_MS", "1000", "0", false},
    {"RONDO_HANDSHAKE_TIMEOUT_MS", "1000", "-5", false},
    {"RONDO_TIMEOUT_MS", "1000", "12s", false},
    {"RONDO_DESTROY_TIMEOUT_MS", "1000", "", false},
    {"RONDO_STALL_MS", "1000", " 7", false},
    {"RONDO_HEARTBEAT_MS", "500", "0", true},
    {"RONDO_SUSPICION_MS", "0", "2999", true},
    {"RONDO_CHECKSUM", "on", "yes", true},
    {"RONDO_CHECK", "digest,finite", "finite,digest", true},
    {"RONDO_TRANSPORT", "shm", "TCP", true},
    {"RONDO_SOCKET_IFNAME", "^docker,lo", "eth0\n", false},
    {"RONDO_PORT_RANGE", "5000-5099", "5099-5000", false},
    {"RONDO_SECRET_FILE", "/etc/secret", "a\x01", false},
    {"RONDO_INSECURE", "1", "yes", false},
    {"RONDO_SECRET_FD", "3", "-2", false},
    {"RONDO_ENCRYPT", "1", "2", true},
    {"RONDO_TCP_CONGESTION", "", "cubic\t", false},
    {"RONDO_SOCKET_BUFFER_BYTES", "65536", "1", false},
    {"RONDO_CONNECTIONS", "2", "0", true},
    {"RONDO_SLICE_BYTES", "4096", "4095", true},
    {"RONDO_SLICES_PER_CHUNK", "64", "65", true},
    {"RONDO_MAILBOX_BYTES", "1048576", "18446744073709551616", true},
    {"RONDO_ALGORITHM", "hierarchical", "fastest", true},
    {"RONDO_STAGING_BYTES", "65536", "65535", true},
    {"RONDO_BUCKET_BYTES", "0", "4095", true},
    {"RONDO_SINGLE_COPY", "off", "never", true},
    {"RONDO_SHARED_STORES", "streamed", "on", true},
    {"RONDO_FOLD", "any", "free", true},
    {"RONDO_SPIN_US", "0", "-1", false},
    {"RONDO_EAGER_BYTES", "0", "16777217", true},
    {"RONDO_DEVICE_WINDOW_BYTES", "0", "65535", true},
    {"RONDO_DEVICE_BLOCKS", "128", "129", true},
    {"RONDO_DEVICE_LIBRARY", "/opt/libcuda.so.1", "a\tb", false},
    {"RONDO_DEBUG", "trace", "debug", false},
    {"RONDO_TRACE", "/tmp/trace", "a\n", false},
    {"RONDO_TRACE_BYTES", "65536", "1000", false},
    {"RONDO_METRICS", "/var/lib/node", "port:9464", false},
    {"RONDO_MPI_STRICT", "1", "on", true},
    {"RONDO_STATUS", "1", "on", false},
};

TEST_CASE("config: a suspicion is never, or three heartbeats at least, and says so") {
  Config config;
  config.heartbeat_ms = 500;
  config.suspicion_ms = 1'499;
  CHECK_THROWS_WITH_AS(config.check(),
                       "RONDO_SUSPICION_MS=\"1499\" is not allowed: it must be 0 (never) or at least three times "
                       "RONDO_HEARTBEAT_MS, which is 500",
                       Exception);
  for (const int64_t allowed : {int64_t{0}, int64_t{1'500}}) {
    config.suspicion_ms = allowed;
    CHECK_NOTHROW(config.check());
  }
}

TEST_CASE("config: an empty environment gives the defaults, and they are in range") {
  Config config = Config::from_environment();
  CHECK(config.describe() == Config{}.describe());
  CHECK(config.shared_hash() == Config{}.shared_hash());
  config.check();
}

TEST_CASE("config: each variable changes its own line of the description and nothing else") {
  const std::string defaults = Config{}.describe();
  for (const Sample& sample : kSamples) {
    CAPTURE(sample.name);
    Variables variables;
    variables.set(sample.name, sample.value);
    std::string text = Config::from_environment().describe();
    std::string line = std::string(sample.name) + "=" + sample.value + "\n";
    CHECK(text.find(line) != std::string::npos);
    size_t at = defaults.find(std::string(sample.name) + "=");
    REQUIRE(at != std::string::npos);
    std::string expected = defaults;
    expected.replace(at, defaults.find('\n', at) + 1 - at, line);
    CHECK(text == expected);
  }
  size_t lines = 0;
  for (char c : defaults) lines += c == '\n';
  CHECK(lines == std::size(kSamples));
}

TEST_CASE("config: a value that is not allowed names the variable, the value and what is allowed") {
  for (const Sample& sample : kSamples) {
    CAPTURE(sample.name);
    std::string message = failure(sample.name, sample.wrong);
    CHECK(message.find(std::string(sample.name) + "=" + json_text(sample.wrong)) != std::string::npos);
    CHECK(message.find("must be") != std::string::npos);
  }
  CHECK(failure("RONDO_CONNECTIONS", "17") ==
        "RONDO_CONNECTIONS=\"17\" is not allowed: it must be a whole number 1 .. 16");
  // What a terminal would obey is shown.
  CHECK(failure("RONDO_CONNECTIONS", "\x1b[2J\n") ==
        "RONDO_CONNECTIONS=\"\\u001b[2J\\u000a\" is not allowed: it must be a whole number 1 .. 16");
  CHECK(failure("RONDO_CONNECTIONS", "1 ").find("1 .. 16") != std::string::npos);
  CHECK(failure("RONDO_CONNECTIONS", "0x2").find("1 .. 16") != std::string::npos);
  CHECK(failure("RONDO_CONNECTIONS", "4294967297").find("1 .. 16") != std::string::npos);
  CHECK(failure("RONDO_PORT_RANGE", "65536").find("5000-5099") != std::string::npos);
  CHECK(failure("RONDO_PORT_RANGE", "0-10") != "");
  CHECK(failure("RONDO_PORT_RANGE", "1-") != "");
}

TEST_CASE("config: the shared hash depends on the shared fields and on no other") {
  for (const Sample& sample : kSamples) {
    CAPTURE(sample.name);
    Variables variables;
    variables.set(sample.name, sample.value);
    CHECK((Config::from_environment().shared_hash() != Config{}.shared_hash()) == sample.shared);
  }
}

TEST_CASE("config: check refuses a field that a program set out of range, by the variable's name") {
  Config config;
  config.slice_bytes = 1;
  try {
    config.check();
    FAIL("accepted");
  } catch (const Exception& e) {
    CHECK(std::string(e.what()) ==
          "RONDO_SLICE_BYTES=\"1\" is not allowed: it must be a whole number 4096 .. 16777216");
  }
  config = Config{};
  config.algorithm = static_cast<Algorithm>(99);
  CHECK_THROWS_AS(config.check(), Exception);
}

// What a process says on standard error while `action` runs.
std::string said_by(const std::function<void()>& action) {
  const int kept = dup(STDERR_FILENO), file = memfd_create("said", 0);
  dup2(file, STDERR_FILENO);
  action();
  dup2(kept, STDERR_FILENO);
  std::string text(static_cast<size_t>(lseek(file, 0, SEEK_END)), '\0');
  CHECK(pread(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  close(kept);
  close(file);
  return text;
}

TEST_CASE("a variable that is nearly one of Rondo's is warned of once, with that one's name") {
  for (const auto& [given, meant] : {std::pair<std::string, std::string>{"RONDO_TRANSPROT", "RONDO_TRANSPORT"},
                                     {"RONDO_TIMEOUT", "RONDO_TIMEOUT_MS"},
                                     {"RONDO_HEARTBEAT", "RONDO_HEARTBEAT_MS"},
                                     {"RONDO_RENDEVOUS", "RONDO_RENDEZVOUS"},
                                     {"RONDO_EAGERBYTES", "RONDO_EAGER_BYTES"}}) {
    const std::string& set = given;
    CAPTURE(set);
    Variables variables;
    variables.set(set, "1");
    const std::string line = "rondo: " + set + " is set, and nothing reads it: did you mean " + meant + "?\n";
    CHECK(said_by([] { Config::from_environment(); }) == line);
    CHECK(said_by([] { Config::from_environment(); }) == "");
  }
}

TEST_CASE("variables that are somebody else's, or read elsewhere, are not warned of") {
  Variables variables;
  for (const char* name :
       {"RONDO_BENCH", "RONDO_MY_TRAINER", "RONDO_FUZZ_SECONDS", "RONDO_RUN", "RONDO_NODES", "RONDO"}) {
    variables.set(name, "1");
  }
  CHECK(said_by([] { Config::from_environment(); }) == "");
  variables.set("RONDO_DEBUG", "off");
  variables.set("RONDO_CONNECTION", "1");
  CHECK(said_by([] { Config::from_environment(); }) == "");
}

}  // namespace
}  // namespace rondo
