#include "transport/fabrics/descriptor_budget.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include "ring/base/system_error.h"
#include "rondo/error.h"
#include "transport/control/plane/control_plane.h"
#include "transport/island/own_windows.h"
#include "transport/tcp/descriptor_reserve.h"

namespace rondo {
namespace {

// Asio's epoll, timer and event descriptors, listeners, two sleepers, the rendezvous, and some strangers at the door.
constexpr size_t kFixed = 32;

// Strangers may take this share of the descriptors that are left, up to the cap.
constexpr size_t kShare = 4;
constexpr size_t kMostPending = 128;
constexpr size_t kMostEarly = 1024;

}  // namespace

// A ring has two neighbors, so `least` counts links to two peers. Each peer costs two streams more for messages.
DescriptorNeed descriptors_needed(int world, size_t connections) {
  const size_t peers = static_cast<size_t>(world - 1);
  const size_t base = kFixed + control_neighbors(0, world).size();
  return {base + std::min<size_t>(peers, 2) * connections, base + peers * (connections + 2)};
}

// An island costs a connection and a handle for each rank of the host, and two sleepers of each, at most; what is under
// way besides is closed at once.
DescriptorNeed descriptors_of_rank(const Place& place, const Config& config) {
  DescriptorNeed need = descriptors_needed(place.world, config.connections);
  if (config.transport == "tcp" || place.local_world < 2) return need;
  const size_t island = 4 * static_cast<size_t>(place.local_world - 1);
  return {need.least + island, need.most + island + OwnWindows::kMostKept};
}

// own: the data connections of all peers, which may all come at once, and before this rank has opened their
// communicator. They are allowed beyond the strangers' share.
DoorBounds door_bounds(int world, const Config& config, size_t descriptors) {
  const size_t own = static_cast<size_t>(world - 1) * config.connections;
  const size_t early = std::clamp<size_t>(descriptors / kShare, 8, kMostEarly) + own;
  return {std::clamp<size_t>(descriptors / kShare, 8, kMostPending) + own, early, early};
}

// Nothing is reserved: what the program opens later comes off the same limit.
size_t ensure_descriptors(const DescriptorNeed& need) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    throw Exception(system_error("reading the limit of open files", errno));
  }
  const size_t open = count_descriptors();
  if (limit.rlim_cur < open + need.most && limit.rlim_cur < limit.rlim_max) {
    rlimit raised = limit;
    raised.rlim_cur = std::min<rlim_t>(limit.rlim_max, open + need.most);
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  if (limit.rlim_cur < open + need.least) {
    throw Exception(ErrorCode::kSystem,
                    fmt::format("too few file descriptors: this rank needs at least {} besides the {} open now (up to "
                                "{} with every link), and the limit is {}; raise it with ulimit -n",
                                need.least, open, need.most, static_cast<size_t>(limit.rlim_cur)));
  }
  return static_cast<size_t>(limit.rlim_cur) - open;
}

}  // namespace rondo
