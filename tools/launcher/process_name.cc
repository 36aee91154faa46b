#include "tools/launcher/process_name.h"

#include <errno.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

namespace rondo::launcher {
namespace {

struct Span {
  char* begin = nullptr;
  size_t bytes = 0;
};

// Where the kernel reads the command line: fields 48 and 49 of proc(5), after the name in brackets. Empty: not known.
Span arguments() {
  std::ifstream facts("/proc/self/stat");
  facts.ignore(std::numeric_limits<std::streamsize>::max(), ')');
  std::string skipped;
  for (int field = 3; field < 48; ++field) facts >> skipped;
  uintptr_t begin = 0, end = 0;
  if (!(facts >> begin >> end) || begin == 0 || end <= begin) return {};
  return {reinterpret_cast<char*>(begin), end - begin};
}

}  // namespace

void take_process_name(const char* name) {
  // What this program calls itself in its messages is a part of those arguments.
  static std::string own = program_invocation_short_name;
  program_invocation_name = program_invocation_short_name = own.data();
  ::prctl(PR_SET_NAME, name);
  const Span place = arguments();
  std::memset(place.begin, 0, place.bytes);
  std::memcpy(place.begin, name, std::min(std::strlen(name), place.bytes));
}

}  // namespace rondo::launcher
