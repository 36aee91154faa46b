#include "ring/base/whole_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "rondo/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Exception(ErrorCode::kSystem, fmt::format("cannot write {}: {}", path, why));
}

// 0, or errno.
int write_text(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  if (file) return 0;
  return errno != 0 ? errno : EIO;
}

}  // namespace

// The text goes into a file beside it, which then takes the name: a rename is one step. The process id keeps
// two processes apart that replace one file.
void replace_file(const std::string& path, const std::string& text) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    if (const int code = write_text(path, text)) refuse(path, std::strerror(code));
    return;
  }
  // In the same folder: a rename does not cross file systems.
  const std::string next = fmt::format("{}.{}", path, getpid());
  const int code = write_text(next, text);
  if (code == 0) fs::rename(next, path, error);
  if (code == 0 && !error) return;
  const std::string why = code != 0 ? std::strerror(code) : error.message();
  fs::remove(next, error);
  refuse(path, why);
}

}  // namespace rondo
