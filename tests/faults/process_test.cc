// What a process does beside Rondo: it forks, executes programs, takes signals; and strangers come to its ports.
#include <arpa/inet.h>
#include <dirent.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "rondo/communicator.h"
#include "tests/faults/ranks.h"
#include "tests/support/random.h"

namespace rondo::testing {
namespace {

constexpr int64_t kSoonMs = 1'500;
constexpr uint64_t kLarge = 4 << 20;

// Sockets among the descriptors of a process.
int sockets_of(pid_t pid) {
  int sockets = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid))) {
    std::error_code gone;
    sockets += std::filesystem::read_symlink(entry, gone).string().find("socket:") == 0;
  }
  return sockets;
}

// Ports on which this process listens.
std::vector<int> listening_ports() {
  std::vector<int> ports;
  for (int fd = 0; fd < 256; ++fd) {
    int listens = 0;
    socklen_t size = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    sockaddr_in address{};
    size = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 || address.sin_family != AF_INET) continue;
    ports.push_back(ntohs(address.sin_port));
  }
  return ports;
}

std::string sum(Communicator& group, uint64_t count) {
  std::vector<float> values(count, 1);
  group.all_reduce(values.data(), values.data(), count, DType::kFloat32);
  for (const float value : values) {
    if (value != static_cast<float>(group.size())) return fmt::format("wrong: {}", value);
  }
  return "right";
}

class Stranger {
 public:
  explicit Stranger(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const timeval limit{8, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Stranger() { ::close(socket_); }
  Stranger(Stranger&& other) noexcept : socket_(std::exchange(other.socket_, -1)), connected_(other.connected_) {}
  bool connected() const { return connected_; }
  void say(const std::string& bytes) const {
    static_cast<void>(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  // Waits for the end of the connection.
  bool is_turned_away() const {
    char bytes[512];
    ssize_t got = 0;
    while ((got = ::recv(socket_, bytes, sizeof bytes, 0)) > 0) {
    }
    return got == 0 || errno == ECONNRESET;
  }

 private:
  int socket_;
  bool connected_ = false;
};

}  // namespace

// The thread sanitizer does not support threads in the child of a process that had threads.
#ifndef __SANITIZE_THREAD__
TEST_CASE("fault 63: a fork in mid-operation leaves the parent alone, and the child's calls are invalid") {
  Job job;
  job.start(3, [&](Here& here) {
    Communicator group = Communicator::join(here.options);
    std::vector<float> values(kLarge, 1);
    Call call;
    call.input = call.output = values.data();
    call.count = kLarge;
    Work work = group.start(call);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      const bool invalid =
          outcome([&] { group.barrier(); }).find("INVALID [] ") == 0 &&
          outcome([&] { group.send(values.data(), 1, DType::kFloat32, 0); }).find("INVALID [] ") == 0 &&
          outcome([&] { group.split(0); }).find("INVALID [] ") == 0 && sockets_of(::getpid()) == 0;
      group.abort("from a child");
      group = Communicator();  // as a child that returns from main() does
      ::_exit(invalid ? 0 : 1);
    }
    work.wait();
    here.say(fmt::format("{} {}", values.front(), values.back()));
    int status = 0;
    ::waitpid(child, &status, 0);
    here.say(WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "invalid" : fmt::format("status {:#x}", status));
    here.say(sum(group, 1000));
    group.destroy();
  });
  for (RankProcess& rank : job.ranks) {
    CHECK(rank.hear() == "3 3");
    CHECK(rank.hear() == "invalid");
    CHECK(rank.hear() == "right");
    CHECK(rank.wait() == 0);
  }
}
#endif

TEST_CASE("fault 64: an executed child inherits no socket, and outliving its parent it hides nothing") {
  Job job;
  job.start(2, [&](Here& here) {
    Communicator group = Communicator::join(here.options);
    group.barrier();
    if (here.rank() == 1) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::execl("/bin/sleep", "sleep", "6", static_cast<char*>(nullptr));
        ::_exit(127);
      }
      eventually([&] {
        std::error_code gone;
        return std::filesystem::read_symlink(fmt::format("/proc/{}/exe", child), gone) !=
               std::filesystem::read_symlink("/proc/self/exe");
      });
      here.say(fmt::format("{} sockets", sockets_of(child)));
      here.say(fmt::format("{}", child));
    }
    here.say(outcome([&] { group.recv(nullptr, 0, DType::kFloat32, 1 - here.rank()); }));
  });
  CHECK(job[1].hear() == "0 sockets");
  const pid_t child = std::stoi(job[1].hear());
  job[1].signal(SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  CHECK(job[0].hear().find("PEER_LOST [1] ") == 0);
  check_within(64, ms_since(killed), kSoonMs);
  CHECK(::kill(child, 0) == 0);  // it is still there
  ::kill(child, SIGKILL);
}

TEST_CASE("fault 61: a signal every millisecond disturbs neither joining nor any call") {
  static std::atomic<int> signals;
  Job job;
  job.start(3, [&](Here& here) {
    struct sigaction action {};
    action.sa_handler = [](int) { signals.fetch_add(1); };  // no SA_RESTART: calls are interrupted
    ::sigaction(SIGALRM, &action, nullptr);
    const itimerval each_ms{{0, 1'000}, {0, 1'000}};
    ::setitimer(ITIMER_REAL, &each_ms, nullptr);
    Communicator group = Communicator::join(here.options);
    for (int i = 0; i < 20; ++i) {
      const std::string said = sum(group, i % 2 == 0 ? 11 : kLarge / 4);
      if (said != "right") here.say(said);
      group.barrier();
      int sent = i, got = -1;
      const int world = group.size();
      group.sendrecv(&sent, 1, (group.rank() + 1) % world, &got, 1, (group.rank() + world - 1) % world, DType::kInt32);
      if (got != i) here.say("wrong message");
      // A pause, so that all sleep in the next call.
      if (i % 5 == here.rank()) eventually([] { return false; }, 30);
    }
    Communicator half = group.split(0);
    half.barrier();
    group.destroy();
    here.say(signals.load() > 50 ? "done" : "too few signals");
  });
  for (RankProcess& rank : job.ranks) CHECK(rank.hear() == "done");
}

TEST_CASE("fault 62: SIGTERM in mid-operation reaches the program's own handler, and the operations go on") {
  static volatile sig_atomic_t terms = 0;
  constexpr int kTerms = 5;
  Job job;
  job.start(3, [&](Here& here) {
    struct sigaction action {};
    action.sa_handler = [](int) { terms = terms + 1; };
    ::sigaction(SIGTERM, &action, nullptr);
    Communicator group = Communicator::join(here.options);
    here.say("ready");
    int32_t said = 0, fewest = 0;
    while (fewest < kTerms) {
      const std::string result = sum(group, kLarge / 4);
      if (result != "right") here.say(result);
      int32_t heard = terms;
      if (heard > said) here.say(fmt::format("heard {}", said = heard));
      group.all_reduce(&heard, &fewest, 1, DType::kInt32, Op::kMin);
    }
    group.destroy();
    here.say("done");
  });
  job.expect_all("ready");
  for (int i = 1; i <= kTerms; ++i) {
    for (const RankProcess& rank : job.ranks) rank.signal(SIGTERM);
    for (RankProcess& rank : job.ranks) REQUIRE(rank.hear() == fmt::format("heard {}", i));
  }
  for (RankProcess& rank : job.ranks) {
    CHECK(rank.hear() == "done");
    CHECK(rank.wait() == 0);
  }
}

TEST_CASE("fault 62: SIGTERM without a handler ends that process as everywhere, and the others are told") {
  Job job;
  job.start(2, [&](Here& here) {
    ::signal(SIGTERM, SIG_DFL);  // the test framework has a handler
    Communicator group = Communicator::join(here.options);
    here.say("ready");
    here.say(outcome([&] {
      while (true) sum(group, kLarge / 4);
    }));
  });
  job.expect_all("ready");
  job[1].signal(SIGTERM);
  const auto asked = std::chrono::steady_clock::now();
  CHECK(job[0].hear().find("PEER_LOST [1] rank 1 (host ") == 0);
  check_within(62, ms_since(asked), kSoonMs);
  CHECK(job[1].wait() == -SIGTERM);
}

TEST_CASE("fault 25: a scan of every port and noise at it while the ranks join change nothing") {
  // Below the ports that the kernel hands out, so that only ranks and other tests take them.
  const int first = 20'000 + static_cast<int>(::getpid() % 300) * 40;
  constexpr int kPorts = 8;  // three listeners, the rendezvous, and ports that others may hold
  int connections = 0;
  for (int round = 0; round < 5; ++round) {
    CAPTURE(round);
    Job job;
    for (int rank = 0; rank < 3; ++rank) {
      JoinOptions options = job.options(rank, 3);
      options.config.data_ports = fmt::format("{}-{}", first, first + kPorts - 2);
      options.rendezvous = fmt::format("tcp://127.0.0.1:{}", first + kPorts - 1 + round * 5);
      job.ranks.emplace_back(options, [](Here& here) {
        here.await();
        std::string said;
        const std::string joined = here.timed([&] {
          Communicator group = Communicator::join(here.options);
          said = sum(group, 50'000);
        });
        here.say(joined + " " + said);
      });
    }
    job.tell_all("go");
    size_t ended = 0;
    std::vector<std::string> lines(job.ranks.size());
    while (ended < lines.size()) {
      for (int port = first; port < first + kPorts + 20; ++port) {
        const Stranger scan(port);
        const Stranger noise(port);
        noise.say(port % 2 == 0 ? "GET / HTTP/1.1\r\n\r\n" : "RONDO\n");
        connections += scan.connected();
      }
      for (size_t i = 0; i < lines.size(); ++i) {
        if (!lines[i].empty() || (lines[i] = job.ranks[i].hear(1)).empty()) continue;
        ++ended;
        const Timed result = timed_line(lines[i]);
        CHECK(result.outcome == "ok right");
        CHECK(result.elapsed_ms < 5'000);
      }
    }
  }
  CHECK(connections > 10);
}

TEST_CASE("fault 25, 27: strangers at every listening port, while the group works") {
  // Proves: HTTP, TLS, random bytes, a hello cut short, silence and a scan change nothing, and do not stay.
  const uint64_t seed = 20260805;
  CAPTURE(seed);
  Random random(seed);
  Job job;
  job.start(3, [&](Here& here) {
    Communicator group = Communicator::join(here.options);
    for (const int port : listening_ports()) here.say(fmt::format("{}", port));
    here.say("ready");
    std::atomic<bool> over = false;
    std::thread listener([&] {
      here.await();
      over = true;
    });
    std::string said = "right";
    int32_t go_on = 1;
    while (go_on != 0 && said == "right") {
      said = sum(group, 50'000);
      go_on = over ? 0 : 1;
      group.broadcast(&go_on, 1, DType::kInt32, 0);
    }
    listener.join();
    Communicator again = group.split(0);  // new links are made though strangers knock
    here.say(said);
    here.say(sum(again, 50'000));
  });
  std::vector<int> ports;
  for (RankProcess& rank : job.ranks) {
    std::string line;
    while ((line = rank.hear()) != "ready") {
      REQUIRE(!line.empty());
      ports.push_back(std::stoi(line));
    }
  }
  REQUIRE(ports.size() >= 3);
  std::vector<Stranger> strangers;
  for (const int port : ports) {
    for (int i = 0; i < 50; ++i) CHECK(Stranger(port).connected());  // a scan
    std::string noise(700, '\0');
    for (char& byte : noise) byte = static_cast<char>(random.below(256));
    for (const std::string& words : {std::string("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
                                     std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11), noise,
                                     std::string(4096, '\0'), std::string("R"), std::string()}) {
      strangers.emplace_back(port);
      strangers.back().say(words);
    }
  }
  const auto start = std::chrono::steady_clock::now();
  for (const Stranger& stranger : strangers) CHECK(stranger.is_turned_away());
  check_within(27, ms_since(start), 5'000);
  job.tell_all("enough");
  for (RankProcess& rank : job.ranks) {
    CHECK(rank.hear() == "right");
    CHECK(rank.hear() == "right");
  }
}

}  // namespace rondo::testing
