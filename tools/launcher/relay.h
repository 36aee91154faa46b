#pragma once

#include <errno.h>
#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ring/base/descriptor.h"
#include "tools/launcher/line_prefix.h"
#include "tools/launcher/output.h"

namespace rondo::launcher {

// Carries what the children of a job write to this program's outputs, line by line. Never blocks. One thread: the
// job's.
class Relay {
 public:
  using Clock = std::chrono::steady_clock;

  // Descriptors are the caller's, non-blocking, and are reset when their output has ended.
  void add(Descriptor& standard_output, Descriptor& standard_error, const std::string& prefix);
  // Lines of the children's standard outputs that begin so are no output: take_marked() has the rest of them.
  void set_marker(const std::string& marker) { marker_ = marker; }
  std::vector<std::string> take_marked() { return std::exchange(marked_, {}); }
  // A line of the children's kind, on standard output.
  void tell(const std::string& line) { output_.pending() += line + "\n"; }
  // A line of this program's own (rondo-run or rondo-bench), on standard error.
  void say(const std::string& message) {
    error_.pending() += std::string(program_invocation_short_name) + ": " + message + "\n";
  }

  // What to poll(), and what to do when it has returned: entries[first] on are those that append_entries() appended.
  void append_entries(std::vector<pollfd>& entries) const;
  // Reads what is there, once from each.
  void read(const std::vector<pollfd>& entries, size_t first);
  void write();

  // All children have ended: what is still in the pipes is given a second from now on, and from each byte on.
  void begin_drain() { drain_until_ = Clock::now() + kDrain; }
  bool draining() const { return drain_until_.has_value(); }
  std::optional<Clock::time_point> drain_until() const { return drain_until_; }
  // Closes the pipes when that second has passed, though somebody may still hold their other ends.
  void check_drain(Clock::time_point now);
  // Nothing is left to read or to write.
  bool drained() const;

 private:
  static constexpr auto kDrain = std::chrono::seconds(1);

  // One output of one child on its way to one of ours.
  struct Stream {
    Descriptor* from;
    Output* to;
    LinePrefix lines;
  };

  void read_stream(Stream& stream);
  void flush(Output& output, const char* name);

  Output output_{1}, error_{2};
  std::vector<Stream> streams_;  // two for each child, in the order of add()
  std::string marker_;           // empty: no line is marked
  std::vector<std::string> marked_;
  std::optional<Clock::time_point> drain_until_;
};

}  // namespace rondo::launcher
