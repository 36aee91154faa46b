#include "transport/rendezvous/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "ring/base/descriptor.h"
#include "ring/base/figures.h"
#include "rondo/error.h"
#include "transport/auth/crypto.h"
#include "transport/tcp/listener.h"

namespace rondo {
namespace {

// The length of the keys that are derived from it.
constexpr size_t kUserSecretBytes = 32;
constexpr mode_t kOthers = 077;

[[noreturn]] void invalid(std::string message) { throw Exception(ErrorCode::kInvalid, std::move(message)); }

// Everything up to the end, at most a byte more than a secret may have. nullopt: errno says why.
std::optional<std::string> read_all(int file) {
  std::string bytes(kMostSecretBytes + 1, '\0');
  size_t have = 0;
  bool seeks = true;
  while (have < bytes.size()) {
    char* target = bytes.data() + have;
    const size_t room = bytes.size() - have;
    // By position, so that a process that joins again, or one that shares the descriptor, reads the same.
    ssize_t n = seeks ? ::pread(file, target, room, static_cast<off_t>(have)) : ::read(file, target, room);
    if (n < 0 && errno == ESPIPE && seeks) {
      seeks = false;
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) break;
    have += static_cast<size_t>(n);
  }
  bytes.resize(have);
  return bytes;
}

// A secret below 16 bytes could be guessed; one above 4 KiB is a wrong file.
std::string checked_size(std::string bytes, const std::string& name) {
  if (bytes.size() >= kLeastSecretBytes && bytes.size() <= kMostSecretBytes) return bytes;
  invalid(fmt::format(
      "{} has {} bytes: a secret needs {} to {} random ones (head -c 32 /dev/urandom >FILE)", name,
      bytes.size() > kMostSecretBytes ? fmt::format("more than {}", kMostSecretBytes) : fmt::format("{}", bytes.size()),
      kLeastSecretBytes, kMostSecretBytes));
}

// O_NOFOLLOW, and facts of the open folder: a link that another user put there is refused.
bool is_private_folder(const std::string& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  return folder.valid() && ::fstat(folder.get(), &info) == 0 && info.st_uid == ::geteuid() &&
         (info.st_mode & kOthers) == 0 && ::faccessat(folder.get(), ".", W_OK | X_OK, AT_EACCESS) == 0;
}

// The last one is made if need be. Throws Exception(kBootstrap).
std::string secret_folder(const Environment& environment) {
  for (const std::string& path :
       {std::string(environment.text("XDG_RUNTIME_DIR")), fmt::format("/run/user/{}", ::geteuid())}) {
    if (path.starts_with('/') && is_private_folder(path)) return path;
  }
  try {
    make_private_directory();
  } catch (const Exception& failure) {
    throw Exception(
        ErrorCode::kBootstrap,
        fmt::format("there is no private folder to keep this user's secret in: {}; set RONDO_SECRET_FILE to "
                    "a file with the same content for all ranks that only you can read, or RONDO_INSECURE=1 "
                    "if everybody who can connect is trusted",
                    failure.what()));
  }
  return private_directory();
}

using NewSecret = std::array<uint8_t, kUserSecretBytes>;

// One write() takes so few bytes, or fails.
bool write_whole(const Descriptor& file, const NewSecret& bytes) {
  return file.valid() && ::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
}

// The file has its name when it is whole, and none before, so that a process that is killed leaves nothing. True: there
// is a file of this name now, this one or another process's. False, with errno: also where the file system has no files
// without a name, or /proc is not there.
bool keep_without_trace(const std::string& path, const NewSecret& bytes) {
  const std::string folder = path.substr(0, path.rfind('/'));
  const Descriptor file(::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!write_whole(file, bytes)) return false;
  const std::string unnamed = fmt::format("/proc/thread-self/fd/{}", file.get());
  return ::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0 || errno == EEXIST;
}

// The same by a file of another name.
bool keep_by_other_name(const std::string& path, const NewSecret& bytes) {
  std::array<uint8_t, 8> suffix;
  fill_random(suffix);
  const std::string temporary = path + "." + to_hex(as_text(suffix));
  const Descriptor file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  const bool kept = write_whole(file, bytes) && (::link(temporary.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int reason = errno;
  if (file.valid()) ::unlink(temporary.c_str());
  errno = reason;
  return kept;
}

void make_user_secret(const std::string& path) {
  NewSecret bytes;
  fill_random(bytes);
  if (keep_without_trace(path, bytes) || keep_by_other_name(path, bytes)) return;
  throw Exception(ErrorCode::kBootstrap,
                  fmt::format("cannot keep this user's secret in {}: {}; set RONDO_SECRET_FILE to a file that only you "
                              "can read",
                              path, std::strerror(errno)));
}

// nullopt: there is no such file.
std::optional<Secret> read_private_file(const std::string& path, Secret::Source source, const std::string& name) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid() && errno == ENOENT) return std::nullopt;
  struct stat info {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0) {
    invalid(fmt::format("{} cannot be read: {}", name, std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) invalid(fmt::format("{} is no regular file", name));
  if (info.st_uid != ::geteuid()) {
    invalid(fmt::format("{} belongs to user {}, this process to user {}: a secret must be its user's own", name,
                        info.st_uid, ::geteuid()));
  }
  if ((info.st_mode & kOthers) != 0) {
    invalid(fmt::format("{} has mode {:o}, which lets others at it: chmod 600 it", name, info.st_mode & 0777));
  }
  std::optional<std::string> bytes = read_all(file.get());
  if (!bytes) invalid(fmt::format("{} cannot be read: {}", name, std::strerror(errno)));
  return Secret{source, checked_size(std::move(*bytes), name), name};
}

}  // namespace

Secret read_secret_file(const std::string& path) {
  const std::string name = fmt::format("RONDO_SECRET_FILE=\"{}\"", path);
  std::optional<Secret> secret = read_private_file(path, Secret::Source::kFile, name);
  if (!secret) invalid(fmt::format("{} is not there", name));
  return std::move(*secret);
}

// The descriptor is the launcher's: it is read, never closed.
Secret read_secret_descriptor(int number) {
  const std::string name = fmt::format("RONDO_SECRET_FD={}", number);
  std::optional<std::string> bytes = read_all(number);
  if (!bytes) {
    invalid(
        fmt::format("{} cannot be read: {}. A program between rondo-run and the ranks must leave the descriptor open "
                    "(in Python pass_fds), or set RONDO_SECRET_FILE instead",
                    name, std::strerror(errno)));
  }
  return {Secret::Source::kDescriptor, checked_size(std::move(*bytes), name), name};
}

// Several ranks may make the file at once: link() lets one win, and all then read the same file.
Secret user_secret(const Environment& environment) {
  const std::string path = secret_folder(environment) + "/rondo-secret";
  const std::string name = fmt::format("this user's on this machine, {}", path);
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (std::optional<Secret> secret = read_private_file(path, Secret::Source::kUser, name)) return *secret;
    make_user_secret(path);
  }
  throw Exception(ErrorCode::kBootstrap, fmt::format("{} disappears as soon as it is made", path));
}

// Settings that contradict each other are refused, since a user who set both expects one that would be ignored.
Secret find_secret(const Config& config, const RendezvousUrl& rendezvous, const Environment& environment) {
  if (config.insecure && (!config.secret_file.empty() || config.secret_fd >= 0)) {
    invalid(fmt::format("RONDO_INSECURE=1 turns authentication off, and {} is set as well: set one of them",
                        config.secret_file.empty() ? "RONDO_SECRET_FD" : "RONDO_SECRET_FILE"));
  }
  if (rendezvous.kind == RendezvousUrl::Kind::kUnique) {
    return {Secret::Source::kUniqueId, std::string(as_text(rendezvous.key)), "the key of the unique id"};
  }
  if (config.insecure && config.encrypt) {
    invalid("RONDO_ENCRYPT=1 needs a secret to make keys from, and RONDO_INSECURE=1 has none: set one of them");
  }
  if (config.insecure) return {};
  if (!config.secret_file.empty()) return read_secret_file(config.secret_file);
  if (config.secret_fd >= 0) return read_secret_descriptor(config.secret_fd);
  return user_secret(environment);
}

}  // namespace rondo
