#include "tests/life/leaks.h"

#include <algorithm>

namespace rondo::life {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kOwnMappings = false;  // the sanitizer's own grow
#else
constexpr bool kOwnMappings = true;
#endif

}  // namespace

std::string Leaks::found() const {
  using testing::Resources;
  struct Kind {
    const char* name;
    size_t Resources::*count;
    size_t least;  // by which each round of a leak adds to it
  };
  constexpr Kind kKinds[] = {{"descriptors", &Resources::descriptors, 1},
                             {"threads", &Resources::threads, 1},
                             {"mappings", &Resources::mappings, 1},
                             {"bytes of memory", &Resources::allocated_bytes, 64}};  // less: how blocks were rounded
  constexpr size_t kFewestRounds = 5;
  if (counted_.size() < kFewestRounds) return "";
  for (const auto& [name, count, least] : kKinds) {
    if (count == &Resources::mappings && !kOwnMappings) continue;
    std::string each;
    for (const Resources& counted : counted_) each += " " + std::to_string(counted.*count);
    const auto stays = [count = count, least = least](const Resources& a, const Resources& b) {
      return a.*count + least > b.*count;
    };
    if (std::adjacent_find(counted_.begin(), counted_.end(), stays) != counted_.end()) continue;
    return std::string("the rounds leave more and more ") + name + ":" + each;
  }
  return "";
}

}  // namespace rondo::life
