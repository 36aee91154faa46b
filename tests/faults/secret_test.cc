// Who does not know the job's secret is kept out by AUTH_FAILED in time, the others are undisturbed, and the secret is
// on no wire.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ring/base/descriptor.h"
#include "tests/faults/ranks.h"

namespace rondo::testing {
namespace {

constexpr const char* kRight = "the right secret: 0123456789abcdef";
constexpr const char* kWrong = "another secret: fedcba9876543210";

std::string make_secret(const TempFolder& folder, const std::string& name, const std::string& content) {
  const std::string path = folder.path(name);
  std::ofstream(path) << content;
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  return path;
}

Descriptor listening(uint16_t* port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), Descriptor::InChild::kInherited);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::listen(socket.get(), 64) == 0);
  REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  *port = ntohs(address.sin_port);
  return socket;
}

uint16_t free_port() {
  uint16_t port = 0;
  listening(&port);
  return port;
}

void join(Here& here) {
  here.say(here.timed([&] {
    Communicator group = Communicator::join(here.options);
    group.barrier();
    if (!group.authenticated()) throw Exception(ErrorCode::kInternal, "not authenticated");
  }));
  here.await();
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
  CHECK(said.elapsed_ms < 5'000);
  job.ranks.emplace_back(options_of(1), join);
  for (const int i : {0, 2}) CHECK(timed_line(job[i].hear()).outcome == "ok");
}

}  // namespace

TEST_CASE("a wrong secret is AUTH_FAILED within 5 s, naming the host and what to compare, and disturbs nobody") {
  const TempFolder folder;
  check_kept_out([&](JoinOptions& options) { options.config.secret_file = make_secret(folder, "wrong", kWrong); },
                 join);
}

TEST_CASE("so is no secret at all, and this user's own where the others have another") {
  check_kept_out(
      [](JoinOptions& options) {
        options.config.secret_file.clear();
        options.config.insecure = true;
      },
      join);
  check_kept_out([](JoinOptions& options) { options.config.secret_file.clear(); }, join);
}

TEST_CASE("a secret file that others can read is refused before anything is opened") {
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

TEST_CASE("another user of the machine does not get in through loopback, without any setting") {
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
  CHECK(said.elapsed_ms < 5'000);
  job.ranks.emplace_back(options_of(1), join);
  for (const int i : {0, 2}) CHECK(timed_line(job[i].hear()).outcome == "ok");
}

TEST_CASE("a rank of another job with the same secret is refused by its job id") {
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
    const uint16_t store = free_port();
    uint16_t relay = 0;
    Descriptor door = listening(&relay);
    Config config = fault_config();
    config.secret_file = make_secret(folder, "right", kRight);
    config.transport = "tcp";
    config.encrypt = encrypt;
    Child copier([&](Parent& test) {
      std::string all;
      std::vector<std::pair<Descriptor, Descriptor>> pairs;
      while (true) {
        std::vector<pollfd> wishes{{door.get(), POLLIN, 0}, {test.descriptor(), POLLIN, 0}};
        for (const auto& [one, other] : pairs) {
          wishes.push_back({one.get(), POLLIN, 0});
          wishes.push_back({other.get(), POLLIN, 0});
        }
        if (::poll(wishes.data(), wishes.size(), 30'000) <= 0) return 1;
        if (wishes[1].revents != 0) break;
        for (size_t i = 2; i < wishes.size(); ++i) {
          if (wishes[i].revents == 0) continue;
          const auto& [one, other] = pairs[(i - 2) / 2];
          char buffer[4096];
          const ssize_t n = ::recv(wishes[i].fd, buffer, sizeof buffer, 0);
          const int to = wishes[i].fd == one.get() ? other.get() : one.get();
          if (n <= 0) {
            ::shutdown(to, SHUT_WR);
            ::shutdown(wishes[i].fd, SHUT_RD);
            continue;
          }
          all.append(buffer, static_cast<size_t>(n));
          for (ssize_t sent = 0; sent < n;)
            sent += std::max<ssize_t>(0, ::send(to, buffer + sent, n - sent, MSG_NOSIGNAL));
        }
        if (wishes[0].revents != 0) {
          Descriptor client(::accept(door.get(), nullptr, nullptr));
          Descriptor server(::socket(AF_INET, SOCK_STREAM, 0));
          sockaddr_in address{};
          address.sin_family = AF_INET;
          address.sin_port = htons(store);
          address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
          if (::connect(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
            pairs.emplace_back(std::move(client), std::move(server));
          }
        }
      }
      const bool named = all.find("fault test") != std::string::npos;
      const bool cards = all.find("RONDOCARD") != std::string::npos;
      const bool secret = all.find(kRight) != std::string::npos || all.find("0123456789abcdef") != std::string::npos;
      test.say(fmt::format("{} {} {} {}", all.size() > 500, named, cards, secret));
      return 0;
    });
    Job job;
    for (const int rank : {0, 1}) {
      JoinOptions options = job.options(rank, 2, config);
      options.rendezvous = fmt::format("tcp://127.0.0.1:{}", rank == 0 ? store : relay);
      job.ranks.emplace_back(options, join);
    }
    for (const int rank : {0, 1}) CHECK(timed_line(job[rank].hear()).outcome == "ok");
    copier.tell("enough");
    CHECK(copier.hear() == (encrypt ? "true true false false" : "true true true false"));
  }
}

}  // namespace rondo::testing
