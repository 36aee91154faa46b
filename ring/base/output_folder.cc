#include "ring/base/output_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "rondo/error.h"

namespace rondo {
namespace {

std::string reason(int number) { return std::generic_category().message(number); }

// Files of this user and of root are trusted; root could read this process's memory as well.
bool trusted(uid_t owner) { return owner == ::geteuid() || owner == 0; }

// Removes slashes at the end: lstat() of a path with one would follow a link.
std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// Why files cannot be made in the folder; "": they can.
std::string not_writable(const std::string& folder) {
  return ::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0 ? "" : reason(errno);
}

// A folder that belongs to a stranger, and in which everybody may write, is a trap; "": it is none. Folders of
// root are made for everybody: /tmp, a container's volumes.
std::string a_strangers(const struct stat& folder) {
  if (trusted(folder.st_uid) || (folder.st_mode & S_IWOTH) == 0) return "";
  return fmt::format("it belongs to user {}, and everybody may write there: name a folder of your own", folder.st_uid);
}

}  // namespace

std::string OutputFolder::problem(const std::string& given, Missing missing) {
  const std::string path = without_slash(given);
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) == 0 && S_ISLNK(facts.st_mode) && !trusted(facts.st_uid)) {
    return fmt::format("it is a link of user {}: name a folder of your own", facts.st_uid);
  }
  if (::stat(path.c_str(), &facts) != 0) {
    return errno == ENOENT && missing == Missing::kMake ? not_writable(parent_of(path)) : reason(errno);
  }
  if (!S_ISDIR(facts.st_mode)) return reason(ENOTDIR);
  const std::string trap = a_strangers(facts);
  return trap.empty() ? not_writable(path) : trap;
}

// The folder is opened, and its owner looked at again through the descriptor: the path may have come to mean
// another folder since problem() looked.
OutputFolder::OutputFolder(std::string what, std::string path, Missing missing)
    : what_(std::move(what)), path_(without_slash(std::move(path))) {
  if (const std::string why = problem(path_, missing); !why.empty()) refuse("", why);
  if (missing == Missing::kMake && ::mkdir(path_.c_str(), 0755) != 0 && errno != EEXIST) refuse("", reason(errno));
  folder_ = Descriptor([&] { return ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  struct stat facts {};
  if (!folder_.valid() || ::fstat(folder_.get(), &facts) != 0) refuse("", reason(errno));
  if (const std::string trap = a_strangers(facts); !trap.empty()) refuse("", trap);
}

Descriptor OutputFolder::create(const std::string& name, mode_t mode) const {
  // O_EXCL and O_NOFOLLOW: a name that a stranger has put there since the removal makes this fail, and is not opened.
  const std::string part = name + ".part";
  ::unlinkat(folder_.get(), part.c_str(), 0);
  Descriptor file(
      [&] { return ::openat(folder_.get(), part.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode); });
  if (!file.valid()) refuse("/" + part, reason(errno));
  return file;
}

void OutputFolder::publish(const std::string& name) const {
  if (::renameat(folder_.get(), (name + ".part").c_str(), folder_.get(), name.c_str()) == 0) return;
  const int number = errno;
  remove_part(name);
  refuse("/" + name, reason(number));
}

void OutputFolder::remove_part(const std::string& name) const {
  ::unlinkat(folder_.get(), (name + ".part").c_str(), 0);
}

void OutputFolder::refuse(const std::string& name, const std::string& why) const {
  throw Exception(ErrorCode::kSystem, fmt::format("{}: {}{}: {}", what_, path_, name, why));
}

}  // namespace rondo
