#include "tests/support/rank_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/rendezvous/test_jobs.h"

namespace rondo::testing {
namespace {

using Clock = std::chrono::steady_clock;

// Longest report of one rank, so that it fits a pipe without a reader.
constexpr size_t kReportBytes = 16 * 1024;

std::string run_body(const std::function<void()>& body) {
  try {
    body();
    return "";
  } catch (const Exception& failure) {
    return fmt::format("{}: {}", error_code_name(failure.code()), failure.what());
  } catch (const std::exception& failure) {
    return failure.what();
  }
}

// Runs the body and takes the others down with it if it fails: they would wait for this rank until their deadline.
void run_member(Communicator& group, const RankBody& body) {
  try {
    body(group);
  } catch (const std::exception& failure) {
    group.abort(failure.what());
    throw;
  }
}

class Child {
 public:
  Child(int rank, const std::function<void(int)>& body) : rank_(rank) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(3);
      std::string text = run_body([&] { body(rank); });
      text.resize(std::min(text.size(), kReportBytes));
      const ssize_t written = ::write(ends[1], text.data(), text.size());
      ::_exit(text.empty() && written == 0 ? 0 : 1);
    }
    ::close(ends[1]);
    pipe_ = ends[0];
  }
  Child(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(pipe_);
  }

  // "" or why it did not end well.
  std::string wait(Clock::time_point deadline) {
    std::string report;
    while (true) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd wish{pipe_, POLLIN, 0};
      if (left <= 0 || ::poll(&wish, 1, static_cast<int>(left)) <= 0) {
        return fmt::format("rank {} did not end before the deadline\n", rank_);
      }
      char buffer[4096];
      const ssize_t moved = ::read(pipe_, buffer, sizeof buffer);
      if (moved <= 0) break;
      report.append(buffer, static_cast<size_t>(moved));
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    if (WIFSIGNALED(status)) return fmt::format("rank {} died of signal {}\n", rank_, WTERMSIG(status));
    return WEXITSTATUS(status) == 0 ? "" : fmt::format("rank {}: {}\n", rank_, report);
  }

 private:
  int rank_;
  pid_t pid_ = -1;
  int pipe_ = -1;
};

}  // namespace

Config RankGroup::quiet_config() {
  Config config;
  config.start_timeout_ms = 60'000;
  config.handshake_timeout_ms = 30'000;
  config.timeout_ms = 60'000;
  config.destroy_timeout_ms = 30'000;
  config.debug = "off";
  return config;
}

std::string run_bare_processes(int world, std::chrono::seconds deadline, const std::function<void(int)>& body) {
  const auto until = Clock::now() + deadline;
  std::vector<std::unique_ptr<Child>> children;
  for (int rank = 0; rank < world; ++rank) children.push_back(std::make_unique<Child>(rank, body));
  std::string troubles;
  for (auto& child : children) troubles += child->wait(until);
  return troubles;
}

std::string run_processes(const RankGroup& group, const RankBody& body) {
  const test::Folder folder;
  return run_bare_processes(group.world, group.deadline, [&](int rank) {
    group.before(rank);
    JoinOptions options;
    options.rank = rank;
    options.world = group.world;
    options.rendezvous = "unix://" + folder.path("store");
    options.job_id = "test";
    options.config = group.config;
    Communicator communicator = Communicator::join(options);
    run_member(communicator, body);
  });
}

std::string run_threads(const RankGroup& group, const RankBody& body) {
  std::vector<Communicator> ranks = Communicator::inproc(group.world, group.config);
  std::vector<std::string> troubles(ranks.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r) {
    threads.emplace_back([&, r] {
      Communicator own = std::move(ranks[r]);
      troubles[r] = run_body([&] { run_member(own, body); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string all;
  for (size_t r = 0; r < troubles.size(); ++r) {
    if (!troubles[r].empty()) all += fmt::format("rank {}: {}\n", r, troubles[r]);
  }
  return all;
}

void expect(bool condition, const std::string& otherwise) {
  if (!condition) throw std::runtime_error(otherwise);
}

}  // namespace rondo::testing
