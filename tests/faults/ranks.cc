#include "tests/faults/ranks.h"

#include <dirent.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

namespace rondo::testing {
namespace {

using Clock = std::chrono::steady_clock;

// The longest that a rank may live: more than any test of this folder takes.
constexpr unsigned kLifetimeSeconds = 60;

void write_line(int pipe, const std::string& line) {
  std::string bytes = line;
  std::replace(bytes.begin(), bytes.end(), '\n', ' ');
  bytes += '\n';
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t wrote = ::write(pipe, bytes.data() + at, bytes.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return;
    at += static_cast<size_t>(wrote);
  }
}

// "" at the end of the pipe or of the time.
std::string read_line(int pipe, std::string& heard, int ms) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(ms);
  while (true) {
    if (const size_t end = heard.find('\n'); end != std::string::npos) {
      std::string line = heard.substr(0, end);
      heard.erase(0, end + 1);
      return line;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wait{pipe, POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::max<int64_t>(0, left)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return "";
    char bytes[4096];
    const ssize_t got = ::read(pipe, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return "";
    heard.append(bytes, static_cast<size_t>(got));
  }
}

size_t count_entries(const char* path) {
  DIR* folder = ::opendir(path);
  size_t entries = 0;
  while (::readdir(folder) != nullptr) ++entries;
  ::closedir(folder);
  return entries;
}

}  // namespace

Config fault_config() {
  Config config;
  config.start_timeout_ms = 20'000;
  config.handshake_timeout_ms = 2'000;
  config.destroy_timeout_ms = 3'000;
  config.timeout_ms = 25'000;
  config.debug = "off";
  return config;
}

std::string describe(const Error& error) {
  return fmt::format("{} [{}] {}", error_code_name(error.code), fmt::join(error.ranks, ","), error.message);
}

std::string outcome(const std::function<void()>& call) {
  try {
    call();
    return "ok";
  } catch (const Exception& failure) {
    return describe(failure.error());
  }
}

int64_t ms_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
}

bool eventually(const std::function<bool()>& condition, int ms) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(ms);
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void Here::say(const std::string& line) const { write_line(to_test_, line); }

std::string Here::await() {
  const std::string line = read_line(from_test_, heard_, 1'000 * static_cast<int>(kLifetimeSeconds));
  if (line.empty()) ::_exit(4);
  return line;
}

std::string Here::timed(const std::function<void()>& call) const {
  const auto start = Clock::now();
  const std::string result = outcome(call);
  return fmt::format("{} {}", ms_since(start), result);
}

RankProcess::RankProcess(const JoinOptions& options, const Body& body) {
  int up[2], down[2];
  REQUIRE(::pipe(up) == 0);
  REQUIRE(::pipe(down) == 0);
  const pid_t test = ::getpid();
  pid_ = ::fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != test) ::_exit(4);
    ::alarm(kLifetimeSeconds);
    ::signal(SIGPIPE, SIG_DFL);
    ::close(up[0]);
    ::close(down[1]);
    Here here(options, up[1], down[0]);
    const std::string trouble = outcome([&] { body(here); });
    if (trouble != "ok") here.say("exception: " + trouble);
    ::_exit(trouble == "ok" ? 0 : 2);
  }
  ::close(up[1]);
  ::close(down[0]);
  from_rank_ = up[0];
  to_rank_ = down[1];
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      from_rank_(std::exchange(other.from_rank_, -1)),
      to_rank_(std::exchange(other.to_rank_, -1)),
      heard_(std::move(other.heard_)) {}

RankProcess::~RankProcess() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (from_rank_ >= 0) ::close(from_rank_);
  if (to_rank_ >= 0) ::close(to_rank_);
}

std::string RankProcess::hear(int ms) { return read_line(from_rank_, heard_, ms); }
void RankProcess::tell(const std::string& line) const { write_line(to_rank_, line); }
void RankProcess::signal(int number) const { REQUIRE(::kill(pid_, number) == 0); }

int RankProcess::wait() {
  int status = 0;
  REQUIRE(::waitpid(pid_, &status, 0) == pid_);
  pid_ = -1;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

Job::Job() {
  ::signal(SIGPIPE, SIG_IGN);  // of the test: a rank that it talks to may be dead
  char pattern[] = "/tmp/rondo-fault-XXXXXX";
  folder_ = ::mkdtemp(pattern);
}

Job::~Job() {
  ranks.clear();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

JoinOptions Job::options(int rank, int world, const Config& config) const {
  JoinOptions join;
  join.rank = rank;
  join.world = world;
  join.rendezvous = "file://" + folder_ + "/meeting";
  join.job_id = "fault test";
  join.config = config;
  join.config.socket_interface = "lo";
  return join;
}

void Job::start(int world, const RankProcess::Body& body, const Config& config) {
  for (int rank = 0; rank < world; ++rank) ranks.emplace_back(options(rank, world, config), body);
}

void Job::expect_all(const std::string& line) {
  for (RankProcess& rank : ranks) REQUIRE(rank.hear() == line);
}

void Job::tell_all(const std::string& line) const {
  for (const RankProcess& rank : ranks) rank.tell(line);
}

Timed timed_line(const std::string& line) {
  char* end = nullptr;
  const long long elapsed = std::strtoll(line.c_str(), &end, 10);
  if (end == line.c_str() || *end != ' ') return {-1, line};
  return {elapsed, end + 1};
}

Resources Resources::now() {
  std::ifstream maps("/proc/self/maps");
  const auto lines = std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
  return {count_entries("/proc/self/fd"), count_entries("/proc/self/task"), static_cast<size_t>(lines)};
}

Guarded::Guarded(size_t bytes, unsigned char fill)
    : bytes_(bytes), fill_(std::byte{fill}), memory_(bytes + 2 * kGuardBytes, kGuard) {
  std::fill_n(data(), bytes, fill_);
}

bool Guarded::intact() const {
  const auto guard = [](std::byte value) { return value == kGuard; };
  const auto inside = memory_.begin() + kGuardBytes;
  return std::all_of(memory_.begin(), inside, guard) &&
         std::all_of(inside + static_cast<std::ptrdiff_t>(bytes_), memory_.end(), guard);
}

bool Guarded::untouched() const {
  const auto inside = memory_.begin() + kGuardBytes;
  return intact() && std::all_of(inside, inside + static_cast<std::ptrdiff_t>(bytes_),
                                 [this](std::byte value) { return value == fill_; });
}

}  // namespace rondo::testing
