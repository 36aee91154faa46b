#include "tools/launcher/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "tools/launcher/check_call.h"
#include "tools/launcher/orphans.h"

namespace rondo::launcher {
namespace {

using namespace std::chrono_literals;

// Between SIGTERM and SIGKILL: long enough to say goodbye to the other ranks and to write out a log.
constexpr auto kGrace = 5s;
// What a host's process has in addition, since it gives its ranks kGrace.
constexpr auto kHostGrace = 2s;
// How long a rank that has raised gets to end, where others have failed because of it: it may have torch to take apart.
constexpr auto kForTheBlamed = 5s;
// How long the others get to print the exception of a rank that has raised; rich takes a second to format it.
constexpr auto kForTheOthers = 2s;
constexpr size_t kMostNamed = 16;                         // members in a line
constexpr int kEndedCode = 128 + SIGTERM;                 // another host's ranks failed
constexpr int kTimeoutCode = 124;                         // as timeout(1)
constexpr int kCannotRunCode = 126, kNotFoundCode = 127;  // as the shell

// Two pipes a rank: the usual soft limit of 1024 would do for 500 only.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// The control pipe from rondo-run to the process that starts a host's ranks, after the Assignment: one byte is the
// number of a signal to pass on to the ranks, or one of these. Its end says that rondo-run has ended.
constexpr char kEndByte = '\0';      // end the ranks: another host's have failed
constexpr char kEndedByte = '\x7f';  // before two more, the lower first: this rank's process has ended

struct Orders {
  std::vector<int> signals;
  std::vector<int> ended;
  bool end = false;
  bool closed = false;
};

// What has arrived; `fd` must poll as readable. begun: an order that is cut off, from call to call. Bytes that are no
// order are skipped.
Orders read_orders(int fd, std::string& begun) {
  char bytes[64];
  const ssize_t n = ::read(fd, bytes, sizeof(bytes));
  Orders orders;
  orders.closed = n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
  if (n > 0) begun.append(bytes, static_cast<size_t>(n));
  size_t used = 0;
  for (; used < begun.size(); ++used) {
    const char byte = begun[used];
    if (byte == kEndedByte) {
      if (begun.size() - used < 3) break;
      const auto low = static_cast<unsigned char>(begun[++used]), high = static_cast<unsigned char>(begun[++used]);
      orders.ended.push_back(low | high << 8);
    } else if (byte == kEndByte) {
      orders.end = true;
    } else if (byte > 0 && byte < NSIG) {
      orders.signals.push_back(byte);
    }
  }
  begun.erase(0, used);
  return orders;
}

}  // namespace

Job::Job(JobSettings settings) : settings_(std::move(settings)) {
  if (settings_.ended < 0) relay_.set_marker(settings_.loss_marker);
}

// adopt_orphans() comes first: what a rank leaves behind becomes this process's child and can be found at the end.
int Job::run() {
  adopt_orphans();
  // Only then: the ranks inherit the limit, and some programs walk through all possible descriptors.
  if (settings_.members.size() > 400) raise_descriptor_limit();
  try {
    start_members();
  } catch (const std::system_error& error) {
    relay_.say(fmt::format("cannot start {}", error.what()));
    exit_code_ = error.code().value() == ENOENT ? kNotFoundCode : kCannotRunCode;
    ended_ = members_.size();
    ending_ = true;  // or the ends of those that run would count as losses, and start others
    all_ended();
  }
  while (!finished()) step();
  members_.clear();  // reaps
  return exit_code_;
}

void Job::start_members() {
  if (settings_.timeout_s > 0) {
    timeout_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(std::min(settings_.timeout_s, 1e9)));
  }
  for (Member& member : settings_.members) start(member);
}

// The program inherits the signal mask that this one had at its start.
void Job::start(Member& member) {
  member.settings.signal_mask = signals_.original_mask();
  ChildProcess& process = members_.emplace_back(member.settings);
  pids_.insert(process.pid());
  if (member.settings.capture_output) relay_.add(process.standard_output(), process.standard_error(), member.prefix);
  if (member.settings.controlled) controls_.emplace_back(process.control().get()).pending() = member.opening;
}

// Sleeps until something happens, and deals with it. Output is read before signals, so what a member wrote last mostly
// comes before the report of its end.
void Job::step() {
  std::vector<pollfd> entries{{signals_.fd(), POLLIN, 0}, {settings_.control, POLLIN, 0}};
  for (const Output& control : controls_) {
    entries.push_back({control.wants_to_write() ? control.fd() : -1, POLLOUT, 0});
  }
  const size_t relayed = entries.size();
  relay_.append_entries(entries);
  if (::poll(entries.data(), entries.size(), poll_timeout_ms()) < 0 && errno != EINTR) check_call("poll", -1);
  relay_.read(entries, relayed);
  for (const std::string& said : relay_.take_marked()) lose_rank(said);
  if (entries[1].revents != 0) handle_orders();
  while (const auto signal = signals_.next()) handle_signal(*signal);
  for (Output& control : controls_) control.write();
  relay_.write();
  check_deadlines();
}

// The nearest deadline, rounded up: else poll() would return just before it, again and again.
int Job::poll_timeout_ms() const {
  std::optional<Clock::time_point> next;
  for (const auto& deadline : {timeout_, kill_at_, blame_at_, end_at_, relay_.drain_until()}) {
    if (deadline && (!next || *deadline < *next)) next = deadline;
  }
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
}

// The first SIGINT or SIGTERM is for the ranks to handle. The second ends the job.
void Job::handle_signal(int signal) {
  if (signal == SIGCHLD) return check_members();
  signal_running(signal);
  if (signal == SIGTSTP && settings_.control < 0) stop_with_members();
  if (signal != SIGINT && signal != SIGTERM) return;
  // Only output is left to wait for.
  if (ended_ == members_.size()) abandoned_ = true;
  // A host's process counts for itself.
  if (++ending_signals_ == 2 && !ending_ && controls_.empty()) {
    relay_.say(fmt::format("asked twice to end; ending {}", running()));
    end_members();
  }
}

// Until SIGCONT, which is passed on, too. The processes of hosts go on: they watch whether this one lives.
void Job::stop_with_members() {
  for (Output& control : controls_) control.write();
  ::raise(SIGSTOP);
}

// A rank's end is a byte of memory that all ranks inherit: their library takes it as proof (RONDO_ENDED).
void Job::handle_orders() {
  const Orders orders = read_orders(settings_.control, begun_order_);
  for (const int rank : orders.ended) check_call("pwrite", ::pwrite(settings_.ended, "\1", 1, rank));
  for (const int signal : orders.signals) handle_signal(signal);
  if (orders.end && !ending_) {
    if (exit_code_ == 0) exit_code_ = kEndedCode;
    end_members();
  }
  if (!orders.closed) return;
  // rondo-run is gone: there is nobody left to be polite to, or to write to.
  settings_.control = -1;
  if (exit_code_ == 0) exit_code_ = 1;
  ending_ = abandoned_ = true;
  kill_members();
}

// SIGCHLD does not say who has ended, and several ends may be one signal. So all members are looked at.
void Job::check_members() {
  reap_orphans(pids_);
  std::vector<size_t> failed;
  size_t ended = 0;
  for (size_t member = 0; member < members_.size(); ++member) {
    const bool known = members_[member].ending().has_value();
    ended += known;
    if (known && members_[member].ending()->failed()) failed.push_back(member);
    succeeded_ = succeeded_ || (known && !members_[member].ending()->failed());
  }
  ended_ = ended;
  // Losses are judged by lose_member(), so `failed` is emptied.
  if (!settings_.loss_marker.empty() && !ending_) {
    for (const size_t member : std::exchange(failed, {})) {
      if (lost_.insert(member).second) lose_member(member);
    }
  }
  if (settings_.least > 0 && !ending_ && failed.size() + settings_.least <= members_.size()) {
    for (const size_t member : failed) report_loss(member);
    failed.clear();
  }
  if (!failed.empty() && exit_code_ == 0) find_failure(failed);
  if (ended_ == members_.size() && !relay_.draining()) all_ended();
}

std::string Job::how_it_ended(size_t member) {
  const Ending ending = *members_[member].ending();
  return ending.signal != 0 ? fmt::format("was killed by signal {} ({})", ending.signal, ::strsignal(ending.signal))
                            : fmt::format("exited with code {}", ending.code);
}

// One that a signal killed is to blame: others found at once may have failed because of it. Else one that has raised,
// which may take its time to end.
void Job::find_failure(const std::vector<size_t>& failed) {
  const auto killed =
      std::find_if(failed.begin(), failed.end(), [&](size_t member) { return members_[member].ending()->signal; });
  if (killed != failed.end()) return report_failure(*killed);
  const std::optional<Raised> raised = first_raised();
  if (!raised) return report_failure(failed.front());
  if (!blame_at_) blame_at_ = Clock::now() + kForTheBlamed;
  if (members_[raised->member].ending() || Clock::now() >= *blame_at_) report_failure(raised->member, raised->why);
}

// The first member that has raised. One that has ended well since has caught it, and does not count.
std::optional<Job::Raised> Job::first_raised() {
  std::ifstream lines(settings_.raised);
  for (std::string rank, why; lines >> rank && std::getline(lines.ignore(), why);) {
    for (size_t member = 0; member < members_.size(); ++member) {
      const auto& ending = members_[member].ending();
      if (settings_.members[member].name == rank && !(ending && !ending->failed())) return Raised{member, why};
    }
  }
  return std::nullopt;
}

// Where the others' start waits for this rank and nothing takes its place, they would wait in vain: then it fails the
// job.
void Job::report_loss(size_t member) {
  if (ending_ || !lost_.insert(member).second) return;
  const Start ranks = settings_.start ? settings_.start() : Start::kOver;
  const size_t running_now = members_.size() - ended_;
  const bool again = running_now < settings_.most && settings_.restarts > 0 && !succeeded_;
  if (!again && ranks == Start::kUnderWay) {
    relay_.say(
        fmt::format("{} {} is missing at the start of the others", settings_.noun, settings_.members[member].name));
    return report_failure(member);
  }
  relay_.say(fmt::format("{} {} (process {}) {}; {} may go on{}", settings_.noun, settings_.members[member].name,
                         members_[member].pid(), how_it_ended(member), running(),
                         again ? ", and it is started again" : ""));
  if (again) start_again(member, ranks);
}

// A job of several hosts goes on. What is left of a rank ends before its end is proof for the others; a host's process
// that failed, or the way to it, proves nothing of its ranks.
void Job::lose_member(size_t member) {
  const Member& settings = settings_.members[member];
  const std::string how =
      fmt::format("{} {} (process {}) {}", settings_.noun, settings.name, members_[member].pid(), how_it_ended(member));
  const int code = members_[member].ending()->code;
  if (settings_.ended >= 0) {
    members_[member].signal_group(SIGKILL);
    return relay_.tell(fmt::format("{} {} {} {}", settings_.loss_marker, settings.name, code, how));
  }
  for (int i = 0; i < settings.ranks; ++i) lost_ranks_.insert(settings.first_rank + i);
  judge_losses(code, how);
}

// said: what the process of its host has written behind the marker.
void Job::lose_rank(const std::string& said) {
  std::istringstream words(said);
  int rank = -1, code = 0;
  std::string how;
  std::getline(words >> rank >> code >> std::ws, how);
  if (!words || rank < 0 || rank >= settings_.ranks) return;
  lost_ranks_.insert(rank);
  for (Output& control : controls_) {
    control.pending().append({kEndedByte, static_cast<char>(rank & 0xff), static_cast<char>(rank >> 8)});
  }
  judge_losses(code, how);
}

// The exit code is that of the rank whose loss was one too many.
void Job::judge_losses(int code, const std::string& how) {
  if (ending_) return;
  const size_t left = static_cast<size_t>(settings_.ranks) - lost_ranks_.size();
  const bool enough = left >= settings_.least;
  relay_.say(fmt::format("{}; {} of {} ranks are left{}", how, left, settings_.ranks, enough ? "" : ": ending them"));
  if (enough) return;
  exit_code_ = code;
  if (ended_ < members_.size()) end_members();
}

// The others' start waits for this rank; after it, a process that comes is a newcomer.
void Job::start_again(size_t member, Start ranks) {
  --settings_.restarts;
  Member next = settings_.members[member];
  if (ranks == Start::kOver) next.settings.environment = next.again;
  settings_.members.push_back(std::move(next));
  try {
    start(settings_.members.back());
  } catch (const std::system_error& error) {
    settings_.members.pop_back();
    relay_.say(fmt::format("cannot start {} again", error.what()));
  }
}

void Job::report_failure(size_t member, const std::string& why) {
  blame_at_.reset();
  const bool ended = members_[member].ending().has_value();
  const Ending ending = ended ? *members_[member].ending() : Ending{1, 0};
  exit_code_ = ending.code;
  const std::string how = (ended ? how_it_ended(member) : "raised, and has not ended since") +
                          (why.empty() ? "" : fmt::format(" ({})", why));
  const bool others = ended_ < members_.size() && !ending_;
  if (settings_.explain || ending.signal != 0) {
    relay_.say(fmt::format("{} {} (process {}) failed first: it {}{}", settings_.noun, settings_.members[member].name,
                           members_[member].pid(), how, others ? fmt::format("; ending {}", running()) : ""));
  }
  if (!others) return;
  // The others of one that has raised mostly fail by themselves, and print why, if they get the time.
  if (why.empty() || !ended) return end_members();
  end_at_ = Clock::now() + kForTheOthers;
}

void Job::check_deadlines() {
  const auto now = Clock::now();
  if (timeout_ && now >= *timeout_) {
    timeout_.reset();
    if (ended_ < members_.size() && !ending_ && exit_code_ == 0) {
      exit_code_ = kTimeoutCode;
      relay_.say(fmt::format("timeout of {} s; ending {}", settings_.timeout_s, running()));
      end_members();
    }
  }
  if (blame_at_ && now >= *blame_at_) {
    check_members();
    blame_at_.reset();  // also where the job has its code already, as by its timeout
  }
  if (end_at_ && now >= *end_at_) end_members();
  if (kill_at_ && now >= *kill_at_) {
    kill_at_.reset();
    relay_.say(fmt::format("not ended within {} s of SIGTERM, killed: {}", kGrace.count(), running()));
    kill_members();
  }
  relay_.check_drain(now);
}

// Members are asked first. check_deadlines() kills those that do not end in time. Hosts' processes get an order
// instead, since a signal would reach only them.
void Job::end_members() {
  ending_ = true;
  end_at_.reset();
  kill_at_ = Clock::now() + kGrace;
  if (!controls_.empty()) *kill_at_ += kHostGrace;
  for (Output& control : controls_) control.pending() += kEndByte;
  if (!controls_.empty()) return;
  signal_running(SIGTERM);
  signal_running(SIGCONT);  // a stopped process takes SIGTERM only when it goes on
}

void Job::kill_members() {
  for (ChildProcess& member : members_) {
    if (!member.ending()) member.signal_group(SIGKILL);
  }
}

// Whatever the members left running is ended too. A group may live on after its leader, and processes may have left the
// group: both are killed.
void Job::all_ended() {
  timeout_.reset();
  kill_at_.reset();
  end_at_.reset();
  relay_.begin_drain();
  for (const ChildProcess& member : members_) member.signal_group(SIGKILL);
  kill_orphans(pids_);
}

// What members have left in their pipes is relayed first, unless the program was asked to end meanwhile.
bool Job::finished() const {
  if (ended_ < members_.size() || !relay_.draining()) return false;
  return abandoned_ || relay_.drained();
}

void Job::signal_running(int signal) {
  for (Output& control : controls_) control.pending() += static_cast<char>(signal);
  if (!controls_.empty()) return;
  for (ChildProcess& member : members_) {
    if (!member.ending()) member.signal_group(signal);
  }
}

// "rank 0, 2", "the other 255" or "250 ranks".
std::string Job::running() {
  std::vector<std::string_view> names;
  for (size_t member = 0; member < members_.size(); ++member) {
    if (!members_[member].ending()) names.push_back(settings_.members[member].name);
  }
  if (names.size() <= kMostNamed) return fmt::format("{} {}", settings_.noun, fmt::join(names, ", "));
  if (names.size() + 1 == members_.size()) return fmt::format("the other {}", names.size());
  return fmt::format("{} {}s", names.size(), settings_.noun);
}

}  // namespace rondo::launcher
