#include "transport/rendezvous/meeting_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "rondo/error.h"
#include "transport/tcp/socket.h"

namespace rondo {
namespace {

// The file begins with it, and ends with a line feed. The first byte is no letter, so that no text file begins so.
constexpr std::string_view kMagic = "\x89RNDO-M\n";
constexpr size_t kMostBytes = 1024;
// A shared file system tells nobody about changes, so waiting for the lock is looking.
constexpr auto kPause = std::chrono::milliseconds(20);

[[noreturn]] void fail(const std::string& path, std::string_view what) {
  throw Exception(ErrorCode::kBootstrap, fmt::format("the meeting file {} cannot be used: {}", path, what));
}

// F_OFD_SETLK: takes the lock of the first byte. F_OFD_GETLK: looks whether another descriptor has it. True: it is
// free. The kernel ends a lock with its process.
bool lock_is_free(const std::string& path, int file, int command) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  if (::fcntl(file, command, &lock) == 0) return command == F_OFD_SETLK || lock.l_type == F_UNLCK;
  if (errno == EAGAIN || errno == EACCES || errno == EINTR) return false;
  fail(path, fmt::format("its file system has no locks: {}", std::strerror(errno)));
}

// The path is the user's, and may name anything: O_NONBLOCK keeps open() from waiting for a device, and O_NOFOLLOW
// refuses a link. Invalid: there is no such file.
Descriptor open_regular(const std::string& path, int flags) {
  Descriptor file([&] { return ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600); });
  if (!file.valid() && errno == ENOENT && (flags & O_CREAT) == 0) return file;
  if (!file.valid()) fail(path, std::strerror(errno));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) fail(path, "it is not a regular file");
  if (info.st_uid != ::geteuid()) fail(path, "it belongs to another user");
  return file;
}

// Behind the magic; "" where the file is empty, and throws where it begins otherwise.
std::string content(const std::string& path, int file) {
  std::array<char, kMostBytes> bytes;
  const ssize_t size = ::pread(file, bytes.data(), bytes.size(), 0);
  if (size < 0) fail(path, std::strerror(errno));
  const std::string_view text(bytes.data(), static_cast<size_t>(size));
  if (text.empty()) return "";
  if (!text.starts_with(kMagic)) fail(path, "it holds something else; Rondo leaves it alone");
  return std::string(text.substr(kMagic.size()));
}

}  // namespace

MeetingFile::MeetingFile(std::string path) : path_(std::move(path)) { open(); }

MeetingFile::~MeetingFile() {
  if (locked_ && is_current()) ::unlink(path_.c_str());
}

void MeetingFile::open() {
  file_ = open_regular(path_, O_RDWR | O_CREAT);
  content(path_, file_.get());
}

// Whether the path still names the file that is open here.
bool MeetingFile::is_current() const {
  struct stat opened {
  }, named{};
  return ::fstat(file_.get(), &opened) == 0 && ::lstat(path_.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

// The one that had it removes the file, and the lock of a file without a name is nobody's: then the next one is tried.
bool MeetingFile::lock(Store::Deadline deadline) {
  while (true) {
    locked_ = lock_is_free(path_, file_.get(), F_OFD_SETLK);
    if (locked_ && is_current()) break;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    if (!locked_) wait_ready(-1, 0, std::chrono::steady_clock::now() + kPause);
    locked_ = false;
    open();
  }
  if (::ftruncate(file_.get(), 0) != 0) fail(path_, std::strerror(errno));
  return true;
}

// One write() takes so few bytes, or fails.
void MeetingFile::say(const std::string& text) {
  const std::string bytes = fmt::format("{}{}\n", kMagic, text);
  if (bytes.size() > kMostBytes) fail(path_, "the address is too long");
  if (::pwrite(file_.get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    fail(path_, fmt::format("writing failed: {}", std::strerror(errno)));
  }
}

// What ends without a line feed is being written.
std::string said_in_file(const std::string& path) {
  const Descriptor file = open_regular(path, O_RDONLY);
  if (!file.valid()) return "";
  std::string said = content(path, file.get());
  if (!said.ends_with('\n') || lock_is_free(path, file.get(), F_OFD_GETLK)) return "";
  said.pop_back();
  return said;
}

}  // namespace rondo
