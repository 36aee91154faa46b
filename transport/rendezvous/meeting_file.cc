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
  throw Exception(
      ErrorCode::kBootstrap,
      fmt::format("the meeting file {} cannot be used: {}; set RONDO_RENDEZVOUS=file:///path to another one, equal on "
                  "all ranks",
                  path, what));
}

// The bytes that rank 0 locks: the first for as long as it has the file, the second once the file says where it serves.
// So what was left in the file is not taken for the word of a rank 0 that has only just locked it.
constexpr off_t kOwnerByte = 0, kSaidByte = 1;

// F_OFD_SETLK: takes the lock of the byte. F_OFD_GETLK: looks whether another descriptor has it. True: it is free. The
// kernel ends a lock with its process. ESTALE: another host has removed the file, which only its owner does, at the
// end.
bool lock_is_free(const std::string& path, int file, int command, off_t byte) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  while (::fcntl(file, command, &lock) != 0) {
    if (errno == EAGAIN || errno == EACCES) return false;
    if (errno == ESTALE) return command == F_OFD_GETLK;
    if (errno != EINTR) fail(path, fmt::format("its file system has no locks: {}", std::strerror(errno)));
  }
  return command == F_OFD_SETLK || lock.l_type == F_UNLCK;
}

// The file is not there yet. NFS goes on saying so for up to a minute after another host has made it, unless the folder
// is opened.
void look_into_folder(const std::string& path) {
  const std::string name = path.substr(0, path.rfind('/') + 1);
  const Descriptor folder([&] { return ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK); });
  if (!folder.valid() && errno == ENOENT) fail(path, "its folder is not there");
}

// The path is the user's, and may name anything: O_NONBLOCK keeps open() from waiting for a device, and O_NOFOLLOW
// refuses a link. Invalid: there is no such file in the folder.
Descriptor open_regular(const std::string& path, int flags) {
  Descriptor file([&] { return ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600); });
  if (!file.valid() && errno == ENOENT && (flags & O_CREAT) == 0) {
    look_into_folder(path);
    return file;
  }
  if (!file.valid()) fail(path, std::strerror(errno));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) fail(path, "it is not a regular file");
  if (info.st_uid != ::geteuid()) fail(path, "it belongs to another user");
  return file;
}

// Behind the magic; "" where the file is empty or was removed on another host. Throws where it begins otherwise.
std::string content(const std::string& path, int file) {
  std::array<char, kMostBytes> bytes;
  const ssize_t size = ::pread(file, bytes.data(), bytes.size(), 0);
  if (size == 0 || (size < 0 && errno == ESTALE)) return "";
  if (size < 0) fail(path, std::strerror(errno));
  const std::string_view text(bytes.data(), static_cast<size_t>(size));
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
    locked_ = lock_is_free(path_, file_.get(), F_OFD_SETLK, kOwnerByte);
    if (locked_ && is_current()) break;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    if (!locked_) wait_ready(-1, 0, std::chrono::steady_clock::now() + kPause);
    locked_ = false;
    open();
  }
  if (::ftruncate(file_.get(), 0) != 0) fail(path_, std::strerror(errno));
  return true;
}

// One write() takes so few bytes, or fails. On a shared file system they are for other hosts from fdatasync() on, which
// also says where there is no room for them.
void MeetingFile::say(const std::string& text) {
  const std::string bytes = fmt::format("{}{}\n", kMagic, text);
  if (bytes.size() > kMostBytes) fail(path_, "the address is too long");
  if (::pwrite(file_.get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()) ||
      ::fdatasync(file_.get()) != 0) {
    fail(path_, fmt::format("writing failed: {}", std::strerror(errno)));
  }
  if (!lock_is_free(path_, file_.get(), F_OFD_SETLK, kSaidByte)) fail(path_, "another program has locked it");
}

// The lock is looked for before the file is read: where it is there, so are the words of the one that has it. What ends
// without a line feed is being written.
std::string said_in_file(const std::string& path) {
  const Descriptor file = open_regular(path, O_RDONLY);
  if (!file.valid()) return "";
  const bool serves = !lock_is_free(path, file.get(), F_OFD_GETLK, kSaidByte);
  std::string said = content(path, file.get());
  if (!serves || !said.ends_with('\n')) return "";
  said.pop_back();
  return said;
}

}  // namespace rondo
