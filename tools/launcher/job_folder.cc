#include "tools/launcher/job_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace rondo::launcher {
namespace {

constexpr char kStart[] = "/start";
constexpr char kTemplate[] = "/rondo-run-XXXXXX";
// What the ranks may add to the path for a socket of theirs. A socket's address has 108 bytes.
constexpr size_t kNameBytes = 32;

std::string parent_folder() {
  const char* chosen = std::getenv("TMPDIR");
  if (chosen == nullptr || *chosen != '/') return "/tmp";
  const std::string parent = chosen;
  const bool fits = parent.size() + sizeof(kTemplate) + kNameBytes <= sizeof(sockaddr_un::sun_path);
  return fits && std::filesystem::is_directory(parent) ? parent : "/tmp";
}

// The user learns which variable to set.
[[noreturn]] void refuse(const std::string& folder, int why) {
  throw std::runtime_error("the job's folder " + folder + " cannot be made: " + std::strerror(why) +
                           "; set TMPDIR to the absolute path of a folder with room that this user may write to");
}

}  // namespace

JobFolder::JobFolder() : path_(parent_folder() + kTemplate) {
  if (::mkdtemp(path_.data()) == nullptr) refuse(path_, errno);
  const std::string folder = path_ + kStart;
  const timespec never[2] = {{0, 0}, {0, 0}};  // start() looks whether it has changed since
  if (::mkdir(folder.c_str(), 0700) != 0 || ::utimensat(AT_FDCWD, folder.c_str(), never, 0) != 0) {
    const int why = errno;
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
    refuse(folder, why);
  }
}

std::string JobFolder::store() const { return path_ + kStart + "/store"; }

// A socket that comes or goes sets the time of its folder. So the folder tells that there was a store, after it has
// gone.
Start JobFolder::start() const {
  struct stat facts {};
  if (::stat(store().c_str(), &facts) == 0) return Start::kUnderWay;
  const bool changed = ::stat((path_ + kStart).c_str(), &facts) == 0 && facts.st_mtim.tv_sec != 0;
  return changed ? Start::kOver : Start::kAhead;
}

// What cannot be removed stays: a job's end is no failure.
JobFolder::~JobFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace rondo::launcher
