#include "tools/launcher/job.h"

#include <fmt/format.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "tools/launcher/check_call.h"
#include "tools/launcher/orphans.h"

namespace rondo::launcher {
namespace {

using namespace std::chrono_literals;

// Between SIGTERM and SIGKILL: long enough to say goodbye to the other ranks and to write out a log.
constexpr auto kGrace = 5s;
// For output that is still in the pipes after all ranks have ended.
constexpr auto kDrain = 1s;
constexpr size_t kMostNamed = 16;                         // ranks in a line
constexpr int kTimeoutCode = 124;                         // as timeout(1)
constexpr int kCannotRunCode = 126, kNotFoundCode = 127;  // as the shell

// Two pipes a rank: the usual soft limit of 1024 would do for 500 only.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Job::Job(const Options& options, Meeting meeting) : options_(options), meeting_(std::move(meeting)) {}

int Job::run() {
  adopt_orphans();
  // Only then: the ranks inherit the limit, and some programs walk through all possible descriptors.
  if (options_.ranks > 400) raise_descriptor_limit();
  try {
    start_ranks();
  } catch (const std::system_error& error) {
    say(fmt::format("cannot start {}", error.what()));
    exit_code_ = error.code().value() == ENOENT ? kNotFoundCode : kCannotRunCode;
    ended_ = ranks_.size();
    all_ended();
  }
  while (!finished()) step();
  ranks_.clear();  // reaps
  return exit_code_;
}

void Job::start_ranks() {
  if (options_.timeout_s > 0) {
    timeout_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(std::min(options_.timeout_s, 1e9)));
  }
  for (int rank = 0; rank < options_.ranks; ++rank) {
    Environment environment = own_environment();
    set_place(environment, meeting_, rank, options_.ranks);
    for (const std::string& assignment : options_.environment) set_variable(environment, assignment);
    // A terminal stops a background process group that reads from it, so only a file or a pipe is passed on.
    const bool keep_input = rank == 0 && ::isatty(STDIN_FILENO) == 0;
    ranks_.emplace_back(options_.command, environment,
                        SpawnSettings{signals_.original_mask(), options_.prefix, keep_input});
    RankProcess& process = ranks_.back();
    rank_pids_.insert(process.pid());
    if (!options_.prefix) continue;
    const std::string prefix = fmt::format("[{}] ", rank);
    streams_.push_back(Stream{&process.standard_output(), &output_, LinePrefix(prefix)});
    streams_.push_back(Stream{&process.standard_error(), &error_, LinePrefix(prefix)});
  }
}

// Sleeps until something happens, and deals with it.
void Job::step() {
  std::vector<pollfd> entries{{signals_.fd(), POLLIN, 0}};
  for (const Output* output : {&output_, &error_}) {
    entries.push_back({output->wants_to_write() ? output->fd() : -1, POLLOUT, 0});
  }
  for (const Stream& stream : streams_) entries.push_back({stream.to->full() ? -1 : stream.from->get(), POLLIN, 0});
  if (::poll(entries.data(), entries.size(), poll_timeout_ms()) < 0 && errno != EINTR) check_call("poll", -1);
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (entries[i + 3].revents != 0) read_stream(streams_[i]);
  }
  while (const auto signal = signals_.next()) handle_signal(*signal);
  flush(output_);
  flush(error_);
  check_deadlines();
}

int Job::poll_timeout_ms() const {
  std::optional<Clock::time_point> next;
  for (const auto& deadline : {timeout_, kill_at_, drain_until_}) {
    if (deadline && (!next || *deadline < *next)) next = deadline;
  }
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
}

void Job::read_stream(Stream& stream) {
  char bytes[16 * 1024];
  const ssize_t n = ::read(stream.from->get(), bytes, sizeof(bytes));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    stream.lines.finish(stream.to->pending());
    stream.from->reset();
    return;
  }
  stream.lines.append(std::string_view(bytes, static_cast<size_t>(n)), stream.to->pending());
  if (drain_until_) drain_until_ = Clock::now() + kDrain;
}

// Where nobody reads ours any more, the ranks get the same: their next write there fails with SIGPIPE.
void Job::flush(Output& output) {
  // A reader that is behind: the ranks' pipes may have been left alone meanwhile, so their second begins now.
  if (drain_until_ && output.wants_to_write()) drain_until_ = Clock::now() + kDrain;
  output.write();
  if (!output.broken()) return;
  for (Stream& stream : streams_) {
    if (stream.to == &output) stream.from->reset();
  }
}

void Job::handle_signal(int signal) {
  if (signal == SIGCHLD) return check_ranks();
  signal_running(signal);
  if (signal != SIGINT && signal != SIGTERM) return;
  if (ended_ == ranks_.size()) abandoned_ = true;
  if (++ending_signals_ == 2 && !ending_) {
    say(fmt::format("asked twice to end; ending {}", running_ranks()));
    end_ranks();
  }
}

void Job::check_ranks() {
  reap_orphans(rank_pids_);
  std::vector<int> failed;
  size_t ended = 0;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const bool known = ranks_[rank].ending().has_value();
    ended += known;
    if (known && ranks_[rank].ending()->failed()) failed.push_back(static_cast<int>(rank));
  }
  ended_ = ended;
  if (!failed.empty() && exit_code_ == 0) {
    // Of several found at once, one that a signal killed: the others may have failed because of it.
    const auto killed = std::find_if(failed.begin(), failed.end(),
                                     [&](int rank) { return ranks_[static_cast<size_t>(rank)].ending()->signal; });
    report_failure(killed != failed.end() ? *killed : failed.front());
  }
  if (ended_ == ranks_.size() && !drain_until_) all_ended();
}

void Job::report_failure(int rank) {
  const Ending ending = *ranks_[static_cast<size_t>(rank)].ending();
  exit_code_ = ending.code;
  const std::string how = ending.signal != 0
                              ? fmt::format("was killed by signal {} ({})", ending.signal, ::strsignal(ending.signal))
                              : fmt::format("exited with code {}", ending.code);
  const bool others = ended_ < ranks_.size() && !ending_;
  say(fmt::format("rank {} (process {}) failed first: it {}{}", rank, ranks_[static_cast<size_t>(rank)].pid(), how,
                  others ? fmt::format("; ending {}", running_ranks()) : ""));
  if (others) end_ranks();
}

void Job::check_deadlines() {
  const auto now = Clock::now();
  if (timeout_ && now >= *timeout_) {
    timeout_.reset();
    if (ended_ < ranks_.size() && !ending_) {
      exit_code_ = kTimeoutCode;
      say(fmt::format("timeout of {} s; ending {}", options_.timeout_s, running_ranks()));
      end_ranks();
    }
  }
  if (kill_at_ && now >= *kill_at_) {
    kill_at_.reset();
    say(fmt::format("not ended within {} s of SIGTERM, killed: {}", kGrace.count(), running_ranks()));
    signal_running(SIGKILL);
  }
  if (drain_until_ && now >= *drain_until_) {
    drain_until_ = now + kDrain;
    close_streams();
  }
}

// All ranks have ended and nothing more has come, though somebody still holds the pipes.
void Job::close_streams() {
  for (Stream& stream : streams_) {
    if (stream.from->valid()) stream.lines.finish(stream.to->pending());
    stream.from->reset();
  }
}

void Job::end_ranks() {
  ending_ = true;
  kill_at_ = Clock::now() + kGrace;
  signal_running(SIGTERM);
  signal_running(SIGCONT);  // a stopped process takes SIGTERM only when it goes on
}

// Whatever the ranks left running is ended too.
void Job::all_ended() {
  timeout_.reset();
  kill_at_.reset();
  drain_until_ = Clock::now() + kDrain;
  for (const RankProcess& rank : ranks_) rank.signal_group(SIGKILL);
  kill_orphans(rank_pids_);
}

bool Job::finished() const {
  if (ended_ < ranks_.size() || !drain_until_) return false;
  if (abandoned_) return true;
  const bool drained = std::none_of(streams_.begin(), streams_.end(), [](const Stream& s) { return s.from->valid(); });
  return drained && !output_.wants_to_write() && !error_.wants_to_write();
}

void Job::signal_running(int signal) {
  for (RankProcess& rank : ranks_) {
    if (!rank.ending()) rank.signal_group(signal);
  }
}

// "rank 0, 2", "the other 255" or "250 ranks".
std::string Job::running_ranks() {
  std::vector<size_t> running;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].ending()) running.push_back(rank);
  }
  if (running.size() <= kMostNamed) return fmt::format("rank {}", fmt::join(running, ", "));
  if (running.size() + 1 == ranks_.size()) return fmt::format("the other {}", running.size());
  return fmt::format("{} ranks", running.size());
}

void Job::say(const std::string& message) { error_.pending() += fmt::format("rondo-run: {}\n", message); }

}  // namespace rondo::launcher
