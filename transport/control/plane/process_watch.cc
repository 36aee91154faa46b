#include "transport/control/plane/process_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <string_view>
#include <utility>

#include "ring/base/process_handle.h"

namespace rondo {
namespace {

// The launcher's file by a descriptor of this rank's own. The program may open another file by the launcher's number,
// and a program between the launcher and this one may have closed it: such a file's bytes prove no death.
Descriptor own_descriptor(int launcher, int world, const Logger& logger) {
  if (launcher < 0) return {};
  Descriptor file([&] { return ::fcntl(launcher, F_DUPFD_CLOEXEC, 3); });
  constexpr std::string_view kMemory = "/memfd:";
  char name[kMemory.size()] = "";
  struct stat facts {};
  const bool named = file.valid() && ::readlink(fmt::format("/proc/thread-self/fd/{}", file.get()).c_str(), name,
                                                sizeof name) == static_cast<ssize_t>(sizeof name);
  if (named && std::string_view(name, sizeof name) == kMemory && ::fstat(file.get(), &facts) == 0 &&
      facts.st_size == world) {
    return file;
  }
  logger.warn(
      fmt::format("RONDO_ENDED: descriptor {} is no longer rondo-run's: a program between it and the ranks has closed "
                  "it (in Python pass_fds leaves it open). shrink() gets no word of the ends of other hosts' processes",
                  launcher));
  return {};
}

}  // namespace

struct ProcessWatch::Process {
  Process(asio::io_context& io, Descriptor of) : handle(std::move(of)), end(io, handle.get()) {}
  ~Process() { end.release(); }
  Descriptor handle;
  asio::posix::stream_descriptor end;
};

ProcessWatch::ProcessWatch(asio::io_context& io, int rank, int world, int launcher, const Logger& logger,
                           OnEnded on_ended)
    : io_(io),
      rank_(rank),
      world_(world),
      launcher_(own_descriptor(launcher, world, logger)),
      on_ended_(std::move(on_ended)) {}

ProcessWatch::~ProcessWatch() = default;

// A number that another process has by now proves nothing, and does no harm: that one lives.
ProcessWatch::Now ProcessWatch::watch(int peer, const Roster& roster) {
  const PeerCard& own = roster.card(rank_);
  const PeerCard& card = roster.card(peer);
  if (card.host_identity != own.host_identity || card.process_class != own.process_class || own.process_class == 0) {
    return Now::kUnknown;
  }
  Descriptor process = open_process(static_cast<pid_t>(card.pid));
  if (!process.valid()) return errno == ESRCH ? Now::kEnded : Now::kUnknown;
  if (processes_.count(peer)) return Now::kUnknown;
  const auto& watched = processes_[peer] = std::make_unique<Process>(io_, std::move(process));
  watched->end.async_wait(asio::posix::stream_descriptor::wait_read, [this, peer](asio::error_code failure) {
    if (failure) return;
    processes_.erase(peer);
    on_ended_(peer);
  });
  return Now::kUnknown;
}

std::vector<int> ProcessWatch::ended_by_launcher() const {
  if (!launcher_.valid()) return {};
  std::vector<char> ended(static_cast<size_t>(world_));
  if (::pread(launcher_.get(), ended.data(), ended.size(), 0) != static_cast<ssize_t>(ended.size())) return {};
  std::vector<int> ranks;
  for (int rank = 0; rank < world_; ++rank) {
    if (ended[static_cast<size_t>(rank)] == 1 && rank != rank_) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace rondo
