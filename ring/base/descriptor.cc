#include "ring/base/descriptor.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <utility>

namespace rondo {
namespace {

// The descriptors that a forked child closes. The list belongs to the process, since fork handlers do, and
// could find the descriptors in no other way. It is never destroyed: threads may still run when statics are.
class OpenDescriptors {
 public:
  static OpenDescriptors& instance() {
    static auto* list = new OpenDescriptors;
    return *list;
  }

  std::mutex& mutex() { return mutex_; }
  // Requires the lock.
  uint64_t add(int fd) {
    fds_.emplace(++last_, fd);
    return last_;
  }
  // Does nothing in a forked child: there the descriptor is closed already, and its number may be another
  // file's.
  void close(uint64_t entry) {
    std::lock_guard lock(mutex_);
    const auto found = fds_.find(entry);
    if (found == fds_.end()) return;
    ::close(found->second);
    fds_.erase(found);
  }

 private:
  // The lock is held over a fork, so the child finds the list whole. Otherwise a descriptor that another thread
  // is just opening would stay open in the child.
  OpenDescriptors() {
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); }, [] { instance().in_child(); });
  }
  void in_child() {
    for (auto [entry, fd] : fds_) ::close(fd);
    fds_.clear();
    mutex_.unlock();
  }

  // Held while a descriptor is opened, closed or moved into the list, and over a fork.
  std::mutex mutex_;
  // By entry, not by number: a number may be given again while an entry is not.
  std::map<uint64_t, int> fds_;
  uint64_t last_ = 0;
};

// Moves a descriptor that got one of the standard numbers: a printf() of the program must not write to a
// connection.
int above_standard(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const bool closes = (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
  const int moved = ::fcntl(fd, closes ? F_DUPFD_CLOEXEC : F_DUPFD, STDERR_FILENO + 1);
  ::close(fd);
  return moved;
}

}  // namespace

Descriptor::NoFork::NoFork() { OpenDescriptors::instance().mutex().lock(); }
Descriptor::NoFork::~NoFork() { OpenDescriptors::instance().mutex().unlock(); }

Descriptor::Descriptor(int number, InChild in_child) {
  const NoFork no_fork;
  take(number, in_child);
}

// Requires that no thread forks (NoFork).
void Descriptor::take(int number, InChild in_child) {
  const int fd = above_standard(number);
  if (fd >= 0 && in_child == InChild::kClosed) {
    try {
      entry_ = OpenDescriptors::instance().add(fd);
    } catch (...) {  // no memory: nobody else would close it
      ::close(fd);
      throw;
    }
  }
  fd_ = fd;
}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), entry_(std::exchange(other.entry_, 0)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this == &other) return *this;
  reset();
  fd_ = std::exchange(other.fd_, -1);
  entry_ = std::exchange(other.entry_, 0);
  return *this;
}

void Descriptor::reset() {
  if (entry_ != 0) {
    OpenDescriptors::instance().close(entry_);
  } else if (fd_ >= 0) {
    ::close(fd_);
  }
  fd_ = -1;
  entry_ = 0;
}

FileIdentity::FileIdentity(int fd) {
  struct stat facts {};
  if (::fstat(fd, &facts) != 0) return;
  device_ = facts.st_dev;
  inode_ = facts.st_ino;
  // The mode, too: an inode number alone may be used again for another kind of file.
  kind_ = facts.st_mode;
}

bool FileIdentity::is_of(int fd) const {
  struct stat facts {};
  return ::fstat(fd, &facts) == 0 && facts.st_dev == device_ && facts.st_ino == inode_ && facts.st_mode == kind_;
}

// Requires NoFork, and as many places in `owned` as numbers.
void Descriptor::take_all(std::span<const int> numbers, std::vector<Descriptor>& owned) {
  size_t taken = 0;
  try {
    while (taken < numbers.size()) owned[taken].take(numbers[taken], InChild::kClosed), ++taken;
  } catch (...) {  // which has closed its own
    for (const int number : numbers.subspan(taken + 1)) ::close(number);
    throw;
  }
  owned.resize(numbers.size());
}

}  // namespace rondo
