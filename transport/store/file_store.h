#pragma once

#include <cstddef>
#include <string>

#include "ring/base/descriptor.h"
#include "transport/store/request_store.h"
#include "transport/store/store_file.h"
#include "transport/store/store_map.h"

namespace rondo {

// A store in a file that all ranks can reach: on one machine, or on a shared file system with byte-range locks.
// Everything is under a lock on the first byte; the content is a log of checked records, so that whatever a writer
// killed half-way left behind is recognized and cut off. Every user holds a shared lock on the second byte for as long
// as it lives: a process that opens the file and finds nobody there knows that the content is of an earlier run, and
// begins anew. So a file never has to be removed by hand. The last user to leave removes it.
class FileStore : public RequestStore {
 public:
  // last_key: once this key is put, the file's name is free for the next run, while those who have it open go on.
  // most_bytes: of the file, and of the content as StoreMap counts it; the same for all users.
  // Throws Exception(kBootstrap) if the file is another job's or not a store's, and kTimeout if its lock is not to be
  // had.
  FileStore(std::string path, std::string job_id, std::string last_key, Deadline deadline,
            size_t most_bytes = StoreMap::kMaxBytes);
  ~FileStore() override;

 private:
  class Lock;

  StoreReply transact(StoreRequest request, Deadline deadline) override;
  // execute(), begin_anew(), join(), read_records() and append() require the lock on the first byte.
  StoreReply execute(const StoreRequest& request);
  void open_file();
  bool is_current() const;
  void begin_anew();
  void join();
  void read_records();
  void append(const StoreRecord& entry);
  [[noreturn]] void fail(std::string_view what) const;

  std::string path_;
  std::string job_id_;
  std::string last_key_;
  const size_t most_bytes_;
  Descriptor file_;
  std::string head_;     // of this run's log; another one in the file means that the locks failed
  uint64_t offset_ = 0;  // up to where the log has been read
  // The content up to offset_. Every process has its own copy, which read_records() brings up to date.
  StoreMap map_;
  int owner_ = 0;  // the process that opened it
};

}  // namespace rondo
