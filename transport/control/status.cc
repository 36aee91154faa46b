#include "transport/control/status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <ctime>

#include "ring/base/json_text.h"

namespace rondo {
namespace {

// The local time, as RAS writes it.
std::string timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%F %T", &local)};
}

// null: no TCP link is known to move anything.
std::string link_json(const LinkRate& link) {
  if (link.peer < 0) return "null";
  return fmt::format(R"({{"rank":{},"bytes_per_second":{},"best":{}}})", link.peer, link.bytes_per_second, link.best);
}

}  // namespace

std::string status_json(const RankStatus& status) {
  return fmt::format(R"({{"timestamp":"{}","job":{},"session":"{:08x}","rank":{},"world":{},"host":{},)"
                     R"("pid":{},"slowest_link":{},"communicators_count":{},"communicators":[{}]}})"
                     "\n",
                     timestamp(), json_text(status.job), status.session, status.rank, status.world,
                     json_text(status.host), ::getpid(), link_json(status.slowest), status.communicators.size(),
                     fmt::join(status.communicators, ","));
}

}  // namespace rondo
