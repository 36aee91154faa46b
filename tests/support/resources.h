#pragma once

#include <cstddef>
#include <filesystem>
#include <iterator>

namespace rondo::testing {

inline size_t entries_of(const char* folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// Of this process; one descriptor is that of the look itself.
inline size_t open_descriptors() { return entries_of("/proc/self/fd"); }
inline size_t running_threads() { return entries_of("/proc/self/task"); }

}  // namespace rondo::testing
