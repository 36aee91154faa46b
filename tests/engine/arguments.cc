#include "tests/engine/arguments.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ring/base/file_text.h"

namespace rondo::testing {

// doctest owns main() and keeps the arguments to itself; the kernel has them too.
uint64_t argument(std::string_view name, uint64_t by_default) {
  const std::string all = file_text("/proc/self/cmdline");
  const std::string wanted = "--" + std::string(name) + "=";
  const size_t at = all.find(wanted);
  return at == std::string::npos ? by_default : std::strtoull(all.c_str() + at + wanted.size(), nullptr, 10);
}

std::pair<uint64_t, uint64_t> seed_range(uint64_t by_default) {
  const std::pair range(argument("first-seed", 1), argument("seeds", by_default));
  std::printf("seeds %llu to %llu\n", static_cast<unsigned long long>(range.first),
              static_cast<unsigned long long>(range.first + range.second - 1));
  return range;
}

}  // namespace rondo::testing
