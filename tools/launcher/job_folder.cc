#include "tools/launcher/job_folder.h"

#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace rondo::launcher {
namespace {

constexpr char kTemplate[] = "/rondo-run-XXXXXX";
// What the ranks may add to the path for a socket of theirs.
constexpr size_t kNameBytes = 32;

std::string parent_folder() {
  const char* chosen = std::getenv("TMPDIR");
  if (chosen == nullptr || *chosen != '/') return "/tmp";
  const std::string parent = chosen;
  const bool fits = parent.size() + sizeof(kTemplate) + kNameBytes <= sizeof(sockaddr_un::sun_path);
  return fits && std::filesystem::is_directory(parent) ? parent : "/tmp";
}

}  // namespace

JobFolder::JobFolder() : path_(parent_folder() + kTemplate) {
  if (::mkdtemp(path_.data()) == nullptr) throw std::system_error(errno, std::generic_category(), path_);
}

JobFolder::~JobFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace rondo::launcher
