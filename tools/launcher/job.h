#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/launcher/environment.h"
#include "tools/launcher/line_prefix.h"
#include "tools/launcher/options.h"
#include "tools/launcher/output.h"
#include "tools/launcher/rank_process.h"
#include "tools/launcher/signals.h"

namespace rondo::launcher {

// The ranks of one run, from start to end. One thread; everything happens in run(), which sleeps in poll().
class Job {
 public:
  Job(const Options& options, Meeting meeting);

  // Starts the ranks and returns when all have ended and what they wrote is written. The exit code: 0 if all
  // succeeded, else that of the rank that failed first; 124 at the timeout; 127 (126) if the program is not found
  // (cannot be run).
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  // One output of one rank on its way to one of ours.
  struct Stream {
    Descriptor* from;
    Output* to;
    LinePrefix lines;
  };

  void start_ranks();
  void step();
  int poll_timeout_ms() const;
  void read_stream(Stream& stream);
  void flush(Output& output);
  void handle_signal(int signal);
  void check_ranks();
  void report_failure(int rank);
  void check_deadlines();
  void close_streams();
  void end_ranks();
  void all_ended();
  bool finished() const;
  void signal_running(int signal);
  std::string running_ranks();
  void say(const std::string& message);

  const Options& options_;
  const Meeting meeting_;
  Signals signals_;
  Output output_{1}, error_{2};
  std::deque<RankProcess> ranks_;  // a deque: Streams point into it
  std::vector<Stream> streams_;
  std::set<pid_t> rank_pids_;
  size_t ended_ = 0;
  int exit_code_ = 0;
  int ending_signals_ = 0;  // SIGINT and SIGTERM received
  bool ending_ = false;     // SIGTERM has been sent
  bool abandoned_ = false;  // told to end while only output was left
  std::optional<Clock::time_point> timeout_, kill_at_, drain_until_;
};

}  // namespace rondo::launcher
