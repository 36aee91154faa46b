#pragma once

#include <cstddef>
#include <string>

#include "ring/base/descriptor.h"

namespace rondo {

// A mapping of shared memory, unmapped with the object. Stays mapped in forked children.
class Mapping {
 public:
  // At least `bytes` of the file from its beginning. Throws Exception(kSystem).
  enum class Touch { kLater, kNow };  // kNow: no page fault later
  Mapping(int file, size_t bytes, Touch touch);
  // Memory without a file, for the threads of this process: zeroed, and its pages come as they are touched. A forked
  // child has a copy. Throws likewise.
  explicit Mapping(size_t bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }  // whole pages
  // Like kNow, later and on another thread. Where the kernel cannot (before 5.14), pages come as they are touched.
  void populate() const;

 private:
  Mapping(size_t bytes, int flags, int file);

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

size_t whole_pages(size_t bytes);

// A memfd: zeroed memory without a name anywhere, gone with its last user, outside the limits of /dev/shm; sealed, so
// that no process that maps it is hurt by a change of its size. kSparse: pages come when they are first touched.
// Throws Exception(kSystem) when memory or descriptors run out, or the kernel forbids it.
enum class Pages { kSparse, kReserved };
Descriptor make_memory_file(size_t bytes, Pages pages);

// "" if the descriptor is such a file of whole_pages(bytes), else what is wrong with it. kReserved: all of its pages
// are there, so that mapping them takes no memory that nobody has asked for.
std::string check_memory_file(int file, size_t bytes, Pages pages = Pages::kSparse);

}  // namespace rondo
