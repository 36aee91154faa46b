#pragma once

#include <string>
#include <string_view>

namespace rondo::launcher {

// Turns one rank's output into lines that begin with its name. Bytes pass as they are, NUL and bad UTF-8 included; only
// the prefix is added, and a newline where a line is longer than kMaxLineBytes or the output ends without one. What it
// has made passes another one without a prefix unchanged, as lines of another host do.
class LinePrefix {
 public:
  // A line with its prefix: what is held back for a rank that writes no newline.
  static constexpr size_t kMaxLineBytes = 64 * 1024;

  explicit LinePrefix(std::string prefix) : prefix_(std::move(prefix)) {}

  // Appends every line that `bytes` completes to `out`; the rest is kept for the next call.
  void append(std::string_view bytes, std::string& out);
  // The output has ended: appends what was kept.
  void finish(std::string& out);

 private:
  void emit(std::string_view end_of_line, std::string& out);

  std::string prefix_;
  std::string line_;  // the unfinished one
};

}  // namespace rondo::launcher
