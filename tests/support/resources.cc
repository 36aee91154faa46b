#include "tests/support/resources.h"

#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "ring/base/file_text.h"
#include "tests/support/eventually.h"

// The sanitizers have it; their allocators have no mallinfo2().
extern "C" __attribute__((weak)) size_t __sanitizer_get_current_allocated_bytes();

namespace rondo::testing {
namespace {

size_t allocated_now() {
  if (__sanitizer_get_current_allocated_bytes != nullptr) return __sanitizer_get_current_allocated_bytes();
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

}  // namespace

std::vector<std::string> status_of_threads(const std::string& prefix) {
  std::vector<std::string> found;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string status = file_text((thread.path() / "status").string());
    if (field_of(status, "Name:").starts_with(prefix)) found.push_back(status);
  }
  return found;
}

std::string field_of(const std::string& status, const std::string& field) {
  std::istringstream words(status);
  for (std::string word; words >> word;) {
    if (word == field && words >> word) return word;
  }
  return "";
}

char state_of(pid_t id) {
  std::ifstream file("/proc/" + std::to_string(id) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  return name_end == std::string::npos ? '\0' : line[name_end + 2];
}

Resources Resources::now() {
  const size_t allocated = allocated_now();
  std::ifstream maps("/proc/self/maps");  // by the line: a growing text would be maps, too
  size_t lines = 0;
  for (std::string line; std::getline(maps, line);) ++lines;
  std::ifstream statm("/proc/self/statm");
  size_t all_pages = 0, resident_pages = 0;
  statm >> all_pages >> resident_pages;
  return {open_descriptors(), running_threads(), lines, resident_pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE)),
          allocated};
}

Resources Resources::settled() {
  Resources last = now();
  int same = 0;
  eventually([&] {
    const Resources here = now();
    same = here.threads == last.threads && here.descriptors == last.descriptors ? same + 1 : 0;
    last = here;
    return same == 10;
  });
  return last;
}

}  // namespace rondo::testing
