#pragma once

#include <string>

#include "ring/base/descriptor.h"
#include "rondo/store.h"

namespace rondo {

// The file of a file:// rendezvous, where rank 0 says at which address it serves the store: on one machine, or on a
// shared file system with byte-range locks. Rank 0 holds a lock of it for as long as it serves, so nobody takes what a
// crashed run has left for the word of a living one.

// Rank 0's part. The file is removed at the end.
class MeetingFile {
 public:
  // Throws Exception(kBootstrap) where the path cannot be used, or holds something that Rondo has not written.
  explicit MeetingFile(std::string path);
  ~MeetingFile();
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;

  // Until another process lets go of it. False: it has not, by the deadline.
  bool lock(Store::Deadline deadline);
  // The others read it in one piece. No line feed in it. Requires the lock.
  void say(const std::string& text);

 private:
  void open();
  bool is_current() const;

  const std::string path_;
  Descriptor file_;
  bool locked_ = false;
};

// What a living rank 0 has said; "": nothing yet. Throws as MeetingFile's constructor, also where the folder is
// missing.
std::string said_in_file(const std::string& path);

}  // namespace rondo
