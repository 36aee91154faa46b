#include "tests/fabric/processes.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "rondo/error.h"
#include "transport/rendezvous/file_store.h"
#include "transport/rendezvous/roster.h"
#include "transport/tcp_fabric.h"

namespace rondo::testing {
namespace {

void write_line(int pipe, const std::string& line) {
  const std::string bytes = line + "\n";
  if (::write(pipe, bytes.data(), bytes.size()) < 0) ::_exit(3);
}

void run_rank(int pipe, const Launch& launch, const std::string& store_path, uint64_t id, const Config& config,
              const FabricProcess::Body& body) {
  const auto say = [pipe](const std::string& line) { write_line(pipe, line); };
  try {
    const auto deadline = in(static_cast<int>(config.start_timeout_ms));
    auto store = std::make_shared<FileStore>(store_path, launch.job_id, std::string(kRosterEndKey), deadline);
    Member member = open_all(join_tcp(launch, store, config, deadline), id);
    body(member, say);
  } catch (const Exception& failure) {
    say(std::string("exception: ") + failure.what());
    ::_exit(2);
  }
  ::_exit(0);
}

}  // namespace

FabricProcess::FabricProcess(int rank, int world, const std::string& store_path, uint64_t id, const Config& config,
                             const Body& body) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  pid_ = ::fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {
    ::close(ends[0]);
    run_rank(ends[1], launch_of(rank, world), store_path, id, config, body);
  }
  ::close(ends[1]);
  pipe_ = ends[0];
}

FabricProcess::FabricProcess(FabricProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), pipe_(std::exchange(other.pipe_, -1)), heard_(std::move(other.heard_)) {}

FabricProcess::~FabricProcess() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (pipe_ >= 0) ::close(pipe_);
}

std::string FabricProcess::hear(int ms) {
  const auto deadline = in(ms);
  while (heard_.find('\n') == std::string::npos) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wish{pipe_, POLLIN, 0};
    if (left <= 0 || ::poll(&wish, 1, static_cast<int>(left)) <= 0) return "";
    char buffer[4096];
    const ssize_t moved = ::read(pipe_, buffer, sizeof buffer);
    if (moved <= 0) return "";
    heard_.append(buffer, static_cast<size_t>(moved));
  }
  const std::string line = heard_.substr(0, heard_.find('\n'));
  heard_.erase(0, line.size() + 1);
  return line;
}

void FabricProcess::signal(int number) const { ::kill(pid_, number); }

int FabricProcess::wait() {
  int status = 0;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TempFolder::TempFolder() {
  const char* base = std::getenv("TEST_TMPDIR");  // set by Bazel
  path_ = std::string(base == nullptr ? "/tmp" : base) + "/rondo_fabric_XXXXXX";
  REQUIRE(::mkdtemp(path_.data()) != nullptr);
}

TempFolder::~TempFolder() { std::filesystem::remove_all(path_); }

std::vector<FabricProcess> start_ranks(int world, const TempFolder& folder, uint64_t id,
                                       const FabricProcess::Body& body, const Config& config) {
  std::vector<FabricProcess> ranks;
  ranks.reserve(static_cast<size_t>(world));
  for (int rank = 0; rank < world; ++rank) ranks.emplace_back(rank, world, folder.path("store"), id, config, body);
  return ranks;
}

}  // namespace rondo::testing
