#pragma once

#include <signal.h>
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace rondo::bench {

// Processes that this one starts and that never outlive it: the kernel kills them when it ends, however it ends
// (PR_SET_PDEATHSIG), so start them from the main thread. While a Children exists, SIGINT, SIGTERM and SIGHUP are held
// back and passed on to the children by wait(). One at a time in a process.
class Children {
 public:
  Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  // Kills what still runs, and reaps it.
  ~Children();

  struct Program {
    std::string path;
    std::vector<std::string> args;                   // without the program itself
    std::map<std::string, std::string> environment;  // added to this process's
    std::string output_file;                         // standard output goes there; "": this process's
  };
  // Throws Exception(kSystem). A program that cannot be executed exits with 127.
  void start(const Program& program);

  // Until all have ended. When one fails, the rest get SIGTERM, and SIGKILL two seconds later; so do all of them at a
  // signal or after `seconds`. Returns 0, or the code of the one that failed first (128 + n for signal n), or
  // 128 + n for a signal that came here, or 124 when time ran out.
  int wait(double seconds);
  // Whether a signal that came here ended the wait: this process is meant, too.
  bool interrupted() const { return interrupted_; }
  // The one that failed first, counted from 0 in the order of start(); -1: none.
  int failed() const { return failed_; }

 private:
  struct Child {
    pid_t pid;
    int number;
  };
  void reap(int& code);
  void kill_all(int signal);

  std::vector<Child> running_;
  int started_ = 0;
  int failed_ = -1;
  sigset_t held_, before_;
  bool interrupted_ = false;
};

// This process's own executable.
std::string own_program();

// A directory that only this user can enter, removed with all that is in it.
class PrivateDirectory {
 public:
  PrivateDirectory();  // under $TMPDIR or /tmp. Throws Exception(kSystem)
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  ~PrivateDirectory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace rondo::bench
