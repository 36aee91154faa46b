#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/launcher/child_process.h"
#include "tools/launcher/job_folder.h"
#include "tools/launcher/output.h"
#include "tools/launcher/relay.h"
#include "tools/launcher/signals.h"

namespace rondo::launcher {

// A child of a job: a rank, or the process that starts the ranks of a host.
struct Member {
  std::string name;               // in messages, after JobSettings::noun
  std::string prefix;             // of its lines, where outputs are captured
  std::string opening;            // what the control pipe says first; controlled members only
  ChildSettings settings;         // signal_mask is the job's matter
  Environment again;              // of the process that takes its place (JobSettings::most)
  int first_rank = 0, ranks = 0;  // of a host
};

// A job of one host has the ranks as members. A job of several has a process for each host as members, each of which
// runs such a job: that process reports losses, and rondo-run decides.
struct JobSettings {
  std::string noun = "rank";
  std::vector<Member> members;
  double timeout_s = 0;  // 0: none
  size_t least = 0;      // a failure ends the others only if fewer are left; 0: each does
  // For jobs of several hosts: a host's job only says on standard output, after this marker, that a rank has failed,
  // and rondo-run, whose members are the hosts, decides (`least` counts ranks) and tells all hosts. "": not so.
  std::string loss_marker;
  int ranks = 0;   // of rondo-run's hosts
  int ended = -1;  // Launch::ended of a host's ranks; -1: none
  // Where a rank that fails by itself writes "RANK why", a line, before the others hear of it (RONDO_RAISED). "":
  // nowhere.
  std::string raised;
  // A member that fails is started again while fewer than `most` run and none has succeeded, `restarts` times in all.
  size_t most = 0;
  int restarts = 0;
  std::function<Start()> start;  // the ranks'; empty: nothing says
  int control = -1;              // where orders come from (job.cc); -1: nowhere
  bool explain = true;           // false: members explain their failures themselves, unless a signal killed them
};

// Processes that run and fail together, from start to end. One thread; everything happens in run(), which sleeps in
// poll(). Orders of rondo-run come by a pipe, and signals by a descriptor: nothing interrupts it. Members fail in any
// order, but only the first failure sets the exit code.
class Job {
 public:
  explicit Job(JobSettings settings);

  // Starts the members and returns when all have ended and what they wrote is written. The exit code: 0 if all
  // succeeded, or enough (JobSettings::least), else that of the member that failed first; 124 at the timeout; 127 (126)
  // if the program is not found (cannot be run).
  int run();

 private:
  struct Raised {
    size_t member;
    std::string why;
  };
  using Clock = std::chrono::steady_clock;

  void start_members();
  void start(Member& member);
  // One turn of the loop. All other functions are called from it.
  void step();
  int poll_timeout_ms() const;
  void handle_signal(int signal);
  // Orders of rondo-run to a host's process, in bytes (job.cc).
  void handle_orders();
  // What SIGCHLD has to say: who has ended, and what follows from it.
  void check_members();
  // Among several, the one that is to blame.
  void find_failure(const std::vector<size_t>& failed);
  // By the file JobSettings::raised.
  std::optional<Raised> first_raised();
  void report_failure(size_t member, const std::string& why = "");
  // A member has failed, and the others may go on.
  void report_loss(size_t member);
  void stop_with_members();
  // The same in a job of several hosts: in a host's process, or in rondo-run.
  void lose_member(size_t member);
  void lose_rank(const std::string& said);
  void judge_losses(int code, const std::string& how);
  void start_again(size_t member, Start ranks);
  std::string how_it_ended(size_t member);
  void check_deadlines();
  // SIGTERM, and SIGKILL at kill_at_.
  void end_members();
  void kill_members();
  // No member runs: what they have left behind is killed, and their pipes are drained.
  void all_ended();
  bool finished() const;
  void signal_running(int signal);
  std::string running();

  JobSettings settings_;
  Signals signals_;
  Relay relay_;
  std::deque<ChildProcess> members_;  // a deque: Relay points into it
  std::deque<Output> controls_;       // of controlled members, or empty
  // Processes of members_, which reap_orphans() must leave alone.
  std::set<pid_t> pids_;
  size_t ended_ = 0;          // members that have ended; all: only output is left
  std::set<size_t> lost_;     // members that failed, and the others go on
  std::set<int> lost_ranks_;  // of rondo-run's hosts
  std::string begun_order_;   // bytes of an order that is not complete
  bool succeeded_ = false;    // one of them
  int exit_code_ = 0;
  int ending_signals_ = 0;  // SIGINT and SIGTERM received
  bool ending_ = false;     // SIGTERM has been sent
  bool abandoned_ = false;  // told to end while only output was left
  std::optional<Clock::time_point> timeout_, kill_at_;
  std::optional<Clock::time_point> blame_at_;  // when a rank that has raised and not ended is blamed for a failure
  std::optional<Clock::time_point> end_at_;    // SIGTERM for the others, after the end of one that has raised
};

}  // namespace rondo::launcher
