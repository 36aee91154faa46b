#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace rondo::test {

// A program under test: its own process, both outputs going to files so that it never waits for a reader.
class Program {
 public:
  explicit Program(const std::vector<std::string>& command, const std::string& input = "");
  Program(const Program&) = delete;
  ~Program();  // kills it if it still runs

  pid_t pid() const { return pid_; }
  void signal(int signal) const;
  // The exit code, 128 + signal if a signal ended it, -1 if it still runs after `deadline`.
  int wait(std::chrono::milliseconds deadline = std::chrono::seconds(15));
  // What it has written so far.
  std::string output() const;
  std::string errors() const;

 private:
  testing::TempFolder folder_;
  pid_t pid_ = -1;
  int code_ = -1;
};

// The lines, sorted: ranks write in no particular order.
std::vector<std::string> sorted_lines(const std::string& text);
size_t count_of(const std::string& text, const std::string& part);

// True if the process exists and is not merely waiting to be reaped.
bool alive(pid_t pid);

}  // namespace rondo::test
