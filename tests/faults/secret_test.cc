// Who does not know the job's secret is kept out by AUTH_FAILED in time, the others are undisturbed, and the secret is
// on no wire.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ring/base/descriptor.h"
#include "tests/faults/copier.h"
#include "tests/faults/ranks.h"
#include "tests/support/secrets.h"

namespace rondo::testing {
namespace {

constexpr const char* kRight = "the right secret: 0123456789abcdef";
constexpr const char* kWrong = "another secret: fedcba9876543210";

std::string at_loopback(uint16_t port) { return fmt::format("tcp://127.0.0.1:{}", port); }

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A port that was free a moment ago.
uint16_t free_port() {
  const Descriptor door = listen_at(loopback(0), Listen::kOwnAddress);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  REQUIRE(::getsockname(door.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.sin_port);
}

void join(Here& here) {
  here.say(here.timed([&] {
    Communicator group = Communicator::join(here.options);
    group.barrier();
    if (!group.authenticated()) throw Exception(ErrorCode::kInternal, "not authenticated");
  }));
  here.await();
}

// What went through the recorder.
struct Recording {
  std::string all;
  std::string hello, welcome;  // the first words of either side
  std::string requests;        // all that callers said after their hello
};

std::string hear_some(int socket) {
  std::string bytes(4096, '\0');
  const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), 0);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  return bytes;
}

// Says to the store what a rank has said to it: how the store takes it, and after how many ms.
std::string say_again(uint16_t store, const Recording& recording) {
  const auto start = std::chrono::steady_clock::now();
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(store);
  const timeval limit{10, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return "0 refused";
  const auto say = [&](const std::string& words) {
    static_cast<void>(::send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL));
  };
  say(recording.hello);
  const std::string welcome = hear_some(socket.get());
  say(recording.requests);
  const std::string more = hear_some(socket.get());
  const bool same = welcome.size() == recording.welcome.size() && welcome != recording.welcome;
  return fmt::format("{} {}, {}", ms_since(start), same ? "a welcome with another nonce" : "something else",
                     more.empty() && ms_since(start) < 9'000 ? "closed" : "open");
}

// Listens at `relay`, and copies to the store and back whatever comes. Answers the test: "what was it" and "say it
// again".
int record(uint16_t relay, uint16_t store, Parent& test) {
  std::vector<Descriptor> doors;
  doors.push_back(listen_at(loopback(relay), Listen::kOwnAddress));
  Recording recording;
  bool card_put = false;
  const auto note = [&](const Copier::Flow& flow, size_t at) {
    const std::string bytes = flow.held.substr(at);
    recording.all += bytes;
    std::string& first = flow.by_caller ? recording.hello : recording.welcome;
    if (first.empty()) {
      first = bytes;
    } else if (flow.by_caller) {
      recording.requests += bytes;
    }
    const bool put = recording.requests.find("/card/1") != std::string::npos;
    if (put && !card_put) test.say("a card was put");
    card_put = put;
  };
  Copier copier(
      std::move(doors), [store](int) { return loopback(store); }, note);
  test.say("ready");
  while (true) {
    if (!copier.step(test.descriptor())) continue;
    const auto has = [&](const char* text) { return recording.all.find(text) != std::string::npos; };
    if (test.await() == "say it again") {
      test.say(say_again(store, recording));
    } else {
      test.say(fmt::format("{} {} {} {}", recording.all.size() > 500, has("fault test"), has("RONDOCARD"),
                           has(kRight) || has("0123456789abcdef")));
    }
  }
}

// A world of 2 with the right secret at a TCP store; rank 1 comes only after `intruder` was kept out.
void check_kept_out(const std::function<void(JoinOptions&)>& intruder, const RankProcess::Body& body) {
  const TempFolder folder;
  const std::string url = fmt::format("tcp://127.0.0.1:{}", free_port());
  Config config = fault_config();
  config.secret_file = make_secret(folder, "right", kRight);
  config.transport = "tcp";
  Job job;
  const auto options_of = [&](int rank) {
    JoinOptions options = job.options(rank, 2, config);
    options.rendezvous = url;
    return options;
  };
  job.ranks.emplace_back(options_of(0), join);
  JoinOptions wrong = options_of(1);
  intruder(wrong);
  job.ranks.emplace_back(wrong, body);
  const Timed said = timed_line(job[1].hear());
  CAPTURE(said.outcome);
  CHECK(said.begins("AUTH_FAILED ["));
  CHECK(said.has(url));
  CHECK(said.has("RONDO_SECRET_FILE"));
  CHECK_FALSE(said.has(kRight));
  CHECK_FALSE(said.has(kWrong));
  check_within(32, said.elapsed_ms, 5'000);
  job.ranks.emplace_back(options_of(1), join);
  for (const int i : {0, 2}) CHECK(timed_line(job[i].hear()).outcome == "ok");
}

}  // namespace

TEST_CASE(
    "fault 32: a wrong secret is AUTH_FAILED within 5 s, naming the host and what to compare, and disturbs nobody") {
  const TempFolder folder;
  check_kept_out([&](JoinOptions& options) { options.config.secret_file = make_secret(folder, "wrong", kWrong); },
                 join);
}

TEST_CASE("fault 32: so is no secret at all, and this user's own where the others have another") {
  check_kept_out(
      [](JoinOptions& options) {
        options.config.secret_file.clear();
        options.config.insecure = true;
      },
      join);
  check_kept_out([](JoinOptions& options) { options.config.secret_file.clear(); }, join);
}

TEST_CASE("fault 32: a secret file that others can read is refused before anything is opened") {
  const TempFolder folder;
  Job job;
  JoinOptions options = job.options(0, 2);
  options.config.secret_file = make_secret(folder, "open", kRight);
  REQUIRE(::chmod(options.config.secret_file.c_str(), 0644) == 0);
  job.ranks.emplace_back(options, join);
  const Timed said = timed_line(job[0].hear());
  CAPTURE(said.outcome);
  CHECK(said.begins("INVALID ["));
  CHECK(said.has("mode 644"));
  CHECK(said.has("chmod 600"));
}

TEST_CASE("fault 58: another user of the machine does not get in through loopback, without any setting") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root can become another user");
    return;
  }
  const std::string url = fmt::format("tcp://127.0.0.1:{}", free_port());
  Job job;
  const auto options_of = [&](int rank) {
    JoinOptions options = job.options(rank, 2);
    options.rendezvous = url;
    options.config.transport = "tcp";
    return options;
  };
  job.ranks.emplace_back(options_of(0), join);
  job.ranks.emplace_back(options_of(1), [](Here& here) {
    if (::setgid(65'534) != 0 || ::setuid(65'534) != 0) return here.say("cannot become another user");
    ::unsetenv("XDG_RUNTIME_DIR");
    join(here);
  });
  const Timed said = timed_line(job[1].hear());
  CAPTURE(said.outcome);
  CHECK(said.begins("AUTH_FAILED ["));
  check_within(58, said.elapsed_ms, 5'000);
  job.ranks.emplace_back(options_of(1), join);
  for (const int i : {0, 2}) CHECK(timed_line(job[i].hear()).outcome == "ok");
}

TEST_CASE("fault 35: a rank of another job with the same secret is refused by its job id") {
  const TempFolder folder;
  const std::string url = fmt::format("tcp://127.0.0.1:{}", free_port());
  Config config = fault_config();
  config.secret_file = make_secret(folder, "right", kRight);
  Job job;
  for (const int i : {0, 1, 2}) {
    JoinOptions options = job.options(i == 0 ? 0 : 1, 2, config);
    options.rendezvous = url;
    if (i == 1) options.job_id = "another job";
    if (i == 2) {
      const Timed said = timed_line(job[1].hear());
      CAPTURE(said.outcome);
      CHECK(said.begins("BOOTSTRAP ["));
      CHECK(said.has("\"another job\""));
      check_within(35, said.elapsed_ms, 5'000);
    }
    job.ranks.emplace_back(options, join);
  }
  for (const int i : {0, 2}) CHECK(timed_line(job[i].hear()).outcome == "ok");
}

TEST_CASE("ranks that meet at a file with different secrets blame each other by AUTH_FAILED") {
  // Anybody who can write the file can put a card there; the card proves the secret.
  const TempFolder folder;
  Job job;
  for (const int rank : {0, 1}) {
    JoinOptions options = job.options(rank, 2);
    options.config.secret_file = make_secret(folder, rank == 0 ? "a" : "b", rank == 0 ? kRight : kWrong);
    job.ranks.emplace_back(options, join);
  }
  for (const int rank : {0, 1}) {
    const Timed said = timed_line(job[rank].hear());
    CAPTURE(said.outcome);
    CHECK(said.begins("AUTH_FAILED ["));
  }
}

TEST_CASE("an observer of every byte of a start sees the job's name, and no secret") {
  for (const bool encrypt : {false, true}) {
    CAPTURE(encrypt);
    const TempFolder folder;
    const uint16_t store = free_port(), relay = free_port();
    Config config = fault_config();
    config.secret_file = make_secret(folder, "right", kRight);
    config.transport = "tcp";
    config.encrypt = encrypt;
    Child recorder([&](Parent& test) { return record(relay, store, test); });
    REQUIRE(recorder.hear() == "ready");
    Job job;
    for (const int rank : {0, 1}) {
      JoinOptions options = job.options(rank, 2, config);
      options.rendezvous = at_loopback(rank == 0 ? store : relay);
      job.ranks.emplace_back(options, join);
    }
    for (const int rank : {0, 1}) CHECK(timed_line(job[rank].hear()).outcome == "ok");
    if (!encrypt) REQUIRE(recorder.hear() == "a card was put");
    recorder.tell("what was it");
    CHECK(recorder.hear() == (encrypt ? "true true false false" : "true true true false"));
  }
}

TEST_CASE("fault 33: a rank's words to the store, recorded and said again while it waits, open nothing") {
  const TempFolder folder;
  const uint16_t store = free_port(), relay = free_port();
  Config config = fault_config();
  config.secret_file = make_secret(folder, "right", kRight);
  Child recorder([&](Parent& test) { return record(relay, store, test); });
  REQUIRE(recorder.hear() == "ready");
  Job job;
  const auto start = [&](int rank, uint16_t port) {
    JoinOptions options = job.options(rank, 3, config);
    options.rendezvous = at_loopback(port);
    job.ranks.emplace_back(options, join);
  };
  start(0, store);
  start(1, relay);
  REQUIRE(recorder.hear() == "a card was put");
  recorder.tell("say it again");
  const Timed said = timed_line(recorder.hear());
  CHECK(said.outcome == "a welcome with another nonce, closed");
  check_within(33, said.elapsed_ms, 5'000);
  start(2, store);
  for (const int rank : {0, 1, 2}) CHECK(timed_line(job[rank].hear()).outcome == "ok");
}

}  // namespace rondo::testing
