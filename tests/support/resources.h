#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

namespace rondo::testing {

inline size_t entries_of(const char* folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// Counts of this process; one descriptor is that of the look itself.
inline size_t open_descriptors() { return entries_of("/proc/self/fd"); }
inline size_t running_threads() { return entries_of("/proc/self/task"); }

// What /proc says of each thread of this process whose name begins so: the text of its "status".
std::vector<std::string> status_of_threads(const std::string& prefix);
// The word behind `field` in such a text, as "SigBlk:".
std::string field_of(const std::string& status, const std::string& field);

// The state of a process or a thread, as /proc has it: 'R' runs, 'S' sleeps, 'Z' has ended and is not waited for; 0: it
// is gone.
char state_of(pid_t id);

// Every descriptor, thread and mapping of this process, counted, and its memory.
struct Resources {
  size_t descriptors = 0;
  size_t threads = 0;
  size_t mappings = 0;
  size_t resident_bytes = 0;
  size_t allocated_bytes = 0;  // by malloc() and new, and not freed
  static Resources now();
  // Once they stay as they are: the kernel lists a thread for a moment after it has been joined.
  static Resources settled();
};

}  // namespace rondo::testing
