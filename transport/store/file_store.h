#pragma once

#include <string>
#include <vector>

#include "ring/base/descriptor.h"
#include "rondo/store.h"
#include "transport/store/store_file.h"
#include "transport/store/store_map.h"

namespace rondo {

// A store in a file that all ranks can reach: on one machine, or on a shared file system with byte-range locks.
// Everything is under a lock on the first byte; the content is a log of checked records, so that whatever a writer
// killed half-way left behind is recognized and cut off. Every user holds a shared lock on the second byte for as long
// as it lives: a process that opens the file and finds nobody there knows that the content is of an earlier run, and
// begins anew. So a file never has to be removed by hand. The last user to leave removes it.
class FileStore : public Store {
 public:
  // last_key: once this key is put, the file's name is free for the next run, while those who have it open go on.
  // Throws Exception(kBootstrap) if the file is another job's or not a store's, and kTimeout if its lock is not to be
  // had.
  FileStore(std::string path, std::string job_id, std::string last_key, Deadline deadline);
  ~FileStore() override;

  void put(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::optional<std::string> try_get(std::string_view key, Deadline deadline) override;
  int64_t add(std::string_view key, int64_t amount, Deadline deadline) override;
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                          Deadline deadline) override;
  bool remove(std::string_view key, Deadline deadline) override;

 private:
  class Lock;

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
  Descriptor file_;
  std::string head_;     // of this run's log; another one in the file means that the locks failed
  uint64_t offset_ = 0;  // up to where the log has been read
  StoreMap map_;
  int owner_ = 0;  // the process that opened it
};

}  // namespace rondo
