#include "transport/store/file_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "ring/base/json_text.h"
#include "rondo/error.h"
#include "transport/store/store_file.h"
#include "transport/store/store_wire.h"
#include "transport/tcp/socket.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

// The bytes of the file that are locked: one transaction at a time, and who is there.
constexpr off_t kMutexByte = 0;
constexpr off_t kPresenceByte = 1;

// A shared file system tells nobody about changes, so waiting is looking: often at first, then as rarely as a start can
// bear.
constexpr auto kFirstPause = std::chrono::milliseconds(1);
constexpr auto kLongestPause = std::chrono::milliseconds(50);

// F_UNLCK, F_RDLCK or F_WRLCK of one byte, without waiting. False: another one has it, or errno says why. A lock of
// another kind that this descriptor has there is replaced.
bool set_lock(int fd, short type, off_t byte) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

// False at the end of the file, too: the caller knows how much should be there.
bool read_at(int fd, uint64_t offset, size_t size, std::string* bytes) {
  bytes->resize(size);
  size_t have = 0;
  while (have < size) {
    ssize_t n = ::pread(fd, bytes->data() + have, size - have, static_cast<off_t>(offset + have));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    have += static_cast<size_t>(n);
  }
  return true;
}

// False where the system has written less: errno says why.
bool write_at(int fd, uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    offset += static_cast<uint64_t>(n);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// Sleeps for *pause, then doubles it. Throws kInterrupted where the program ends the wait.
void pause_until(Store::Deadline deadline, std::chrono::milliseconds* pause) {
  wait_ready(-1, 0, std::min<Store::Deadline>(deadline, Clock::now() + *pause));
  *pause = std::min(2 * *pause, std::chrono::milliseconds(kLongestPause));
}

}  // namespace

// Holds the file's mutex, a lock of its first byte. The kernel ends it with the process: one that is killed leaves none
// behind.
class FileStore::Lock {
 public:
  // Polls, since F_OFD_SETLKW has no deadline.
  Lock(const FileStore& store, Deadline deadline) : fd_(store.file_.get()) {
    if (store.owner_ != ::getpid()) {
      throw Exception(ErrorCode::kInvalid, "this store was opened before fork(): a child must open its own");
    }
    std::chrono::milliseconds pause = kFirstPause;
    while (!set_lock(fd_, F_WRLCK, kMutexByte)) {
      if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
        store.fail(fmt::format("its file system has no locks: {}", std::strerror(errno)));
      }
      if (Clock::now() >= deadline) {
        throw Exception(ErrorCode::kTimeout,
                        fmt::format("the store file {} stayed locked until the deadline", store.path_));
      }
      pause_until(deadline, &pause);
    }
  }
  ~Lock() { set_lock(fd_, F_UNLCK, kMutexByte); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int fd_;
};

// The presence byte decides: who can lock it exclusively is alone, so what the file holds is of an earlier run.
FileStore::FileStore(std::string path, std::string job_id, std::string last_key, Deadline deadline, size_t most_bytes)
    : path_(std::move(path)),
      job_id_(std::move(job_id)),
      last_key_(std::move(last_key)),
      most_bytes_(most_bytes),
      owner_(::getpid()) {
  map_.limit(most_bytes_);
  while (true) {
    open_file();
    Lock lock(*this, deadline);
    if (!is_current()) continue;  // its last user removed it meanwhile; the lock goes with the descriptor
    if (set_lock(file_.get(), F_WRLCK, kPresenceByte)) {
      begin_anew();
    } else {
      join();
    }
    if (!set_lock(file_.get(), F_RDLCK, kPresenceByte)) fail("its lock could not be taken");
    return;
  }
}

// The last user removes the file, found by the same exclusive lock.
FileStore::~FileStore() {
  if (!file_.valid() || owner_ != ::getpid()) return;
  try {
    Lock lock(*this, Clock::now() + std::chrono::seconds(1));
    if (set_lock(file_.get(), F_WRLCK, kPresenceByte) && is_current()) ::unlink(path_.c_str());
  } catch (const Exception&) {
    // The file stays; the next run begins it anew.
  }
}

void FileStore::fail(std::string_view what) const {
  throw Exception(ErrorCode::kBootstrap, fmt::format("the store file {} cannot be used: {}", path_, what));
}

// The path is the user's, and may name anything: O_NONBLOCK keeps open() from waiting for a device, and O_NOFOLLOW
// refuses a link.
void FileStore::open_file() {
  file_ =
      Descriptor([&] { return ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600); });
  if (!file_.valid()) fail(std::strerror(errno));
  struct stat info {};
  if (::fstat(file_.get(), &info) != 0 || !S_ISREG(info.st_mode)) fail("it is not a regular file");
  if (info.st_uid != ::geteuid()) fail("it belongs to another user");
}

// Whether the path still names the file that is open here.
bool FileStore::is_current() const {
  struct stat opened {
  }, named{};
  return ::fstat(file_.get(), &opened) == 0 && ::lstat(path_.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

// Requires the lock. A new nonce in the head tells users of the old content, if there are any, that they are cut off.
void FileStore::begin_anew() {
  struct stat info {};
  std::string magic;
  bool empty = ::fstat(file_.get(), &info) == 0 && info.st_size == 0;
  // Whatever else the path names by mistake is not ours to overwrite.
  if (!empty && !(read_at(file_.get(), 0, kStoreFileMagic.size(), &magic) && magic == kStoreFileMagic)) {
    fail("it holds something else; Rondo leaves it alone");
  }
  uint64_t nonce = 0;
  if (::getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) fail("the system gave no random bytes");
  head_ = encode_file_head(nonce, job_id_);
  if (::ftruncate(file_.get(), 0) != 0 || !write_at(file_.get(), 0, head_)) fail(std::strerror(errno));
  offset_ = head_.size();
}

// Requires the lock. Reads the head of the run that others have begun.
void FileStore::join() {
  std::string fixed, job;
  const bool there = read_at(file_.get(), 0, kFileHeadBytes, &fixed);
  const std::optional<FileHead> head = decode_file_head(fixed);
  if (!there || !head) fail("another program has locked it");
  if (head->version != kStoreFileVersion) {
    fail(fmt::format("it is written in version {} by a running process, this one writes version {}", head->version,
                     kStoreFileVersion));
  }
  const bool whole =
      head->job_id_bytes <= kMaxJobIdBytes && read_at(file_.get(), kFileHeadBytes, head->job_id_bytes, &job);
  if (!whole) fail("its head is damaged");
  if (job != job_id_) {
    fail(
        fmt::format("it is in use by job {}, but this process belongs to job {}: use another file, or the same "
                    "RONDO_JOB_ID on all ranks",
                    json_text(job), json_text(job_id_)));
  }
  head_ = fixed + job;
  offset_ = head_.size();
}

// Requires the lock. Catches up with what other processes have appended since the last look.
void FileStore::read_records() {
  struct stat info {};
  std::string head, body;
  if (::fstat(file_.get(), &info) != 0 || !read_at(file_.get(), 0, head_.size(), &head) || head != head_) {
    fail("another run has taken it over, so its locks do not work");
  }
  uint64_t size = static_cast<uint64_t>(info.st_size);
  while (offset_ < size) {
    if (!read_at(file_.get(), offset_, std::min<uint64_t>(kRecordHeadBytes, size - offset_), &head))
      fail("reading failed");
    const auto [body_bytes, expected] = decode_record_head(head);
    const bool whole = head.size() == kRecordHeadBytes && body_bytes <= kMaxRecordBodyBytes &&
                       body_bytes <= size - offset_ - kRecordHeadBytes &&
                       read_at(file_.get(), offset_ + kRecordHeadBytes, body_bytes, &body) &&
                       record_checksum(body) == expected;
    if (!whole) {
      // We hold the lock, so the writer of this is gone, and no process has acted on it.
      if (::ftruncate(file_.get(), static_cast<off_t>(offset_)) != 0) fail(std::strerror(errno));
      return;
    }
    const std::optional<StoreRecord> record = decode_record(body);
    if (!record) fail("a record is malformed");
    if (record->kind == RecordKind::kRemove) {
      map_.remove(record->key);
    } else {
      map_.put(record->key, record->value);
    }
    offset_ += kRecordHeadBytes + body_bytes;
  }
}

// Requires the lock, and that all records were read. A record that is not written whole is cut off again. The log keeps
// overwritten values, too, so the file may be full before the map.
void FileStore::append(const StoreRecord& entry) {
  if (entry.kind == RecordKind::kPut) map_.check_room(entry.key, entry.value);
  const std::string record = encode_record(entry);
  if (offset_ + record.size() > most_bytes_) fail(fmt::format("it would grow beyond {} bytes", most_bytes_));
  if (!write_at(file_.get(), offset_, record)) {
    int reason = errno;
    (void)!::ftruncate(file_.get(), static_cast<off_t>(offset_));
    fail(fmt::format("writing failed: {}", std::strerror(reason)));
  }
  offset_ += record.size();
}

// Waits without the lock.
StoreReply FileStore::transact(StoreRequest request, Deadline deadline) {
  std::chrono::milliseconds pause = kFirstPause;
  while (true) {
    {
      Lock lock(*this, deadline);
      read_records();
      if (request.operation != StoreOperation::kGet || map_.find(request.key) != nullptr) return execute(request);
    }
    if (Clock::now() >= deadline) {
      throw Exception(ErrorCode::kTimeout,
                      fmt::format("nobody put \"{}\" into the store file {} before the deadline", request.key, path_));
    }
    pause_until(deadline, &pause);
  }
}

// Requires the lock. The record of a change is in the file before the map has it: where writing fails, neither does.
StoreReply FileStore::execute(const StoreRequest& request) {
  const std::string* value = map_.find(request.key);
  switch (request.operation) {
    case StoreOperation::kPut:
      append({RecordKind::kPut, request.key, request.first});
      break;
    case StoreOperation::kAdd:
      append({RecordKind::kPut, request.key, fmt::format("{}", map_.sum(request.key, request.amount))});
      break;
    case StoreOperation::kCompareSet:
      if ((value == nullptr ? "" : *value) == request.first) append({RecordKind::kPut, request.key, request.second});
      break;
    case StoreOperation::kRemove:
      if (value != nullptr) append({RecordKind::kRemove, request.key, ""});
      break;
    case StoreOperation::kGet:
    case StoreOperation::kTryGet:
    case StoreOperation::kWill:
      break;
  }
  StoreReply reply = map_.apply(request);
  if (request.operation == StoreOperation::kPut && request.key == last_key_ && is_current()) ::unlink(path_.c_str());
  return reply;
}

}  // namespace rondo
