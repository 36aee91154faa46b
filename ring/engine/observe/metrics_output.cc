#include "ring/engine/observe/metrics_output.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <thread>
#include <utility>

#include "ring/base/caught.h"
#include "ring/base/descriptor.h"
#include "ring/base/log.h"
#include "ring/base/output_folder.h"
#include "ring/base/own_thread.h"
#include "ring/base/system_error.h"

namespace rondo {
namespace {

// The time between two files: Prometheus' file collector reads every 15 s by default.
constexpr int kFileIntervalMs = 5'000;
constexpr const char* kMetrics = "RONDO_METRICS";

// Writes all of the text. False: errno says why not.
bool write_whole(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// Writes the metrics of a join into files that others read, on a thread of its own. The join's observer owns
// it.
class MetricsOutput {
 public:
  // Writes rondo-rank-R.prom in the folder, every 5 s and in the destructor.
  MetricsOutput(const Observer& observer, const std::string& folder);
  ~MetricsOutput();
  MetricsOutput(const MetricsOutput&) = delete;
  MetricsOutput& operator=(const MetricsOutput&) = delete;

 private:
  void run();
  void write_or_warn();
  void write_file() const;

  const Observer& observer_;
  const OutputFolder folder_;
  const std::string file_;  // in the folder
  bool warned_ = false;     // the thread's, then the destructor's
  Descriptor stop_;
  // The process that made it: a forked child has no such thread, and must not write the parent's file.
  const pid_t pid_;
  std::thread thread_;
};

// The output goes first: its thread reads the observer.
struct JoinObserver {
  explicit JoinObserver(ObservedRank about) : observer(std::move(about)) {}
  Observer observer;
  std::unique_ptr<MetricsOutput> output;
};

}  // namespace

// The pointer that callers share is the observer's, and owns both it and its output.
std::shared_ptr<Observer> make_observer(ObservedRank about, const Config& config) {
  about.trace_bytes = config.trace_bytes;
  auto join = std::make_shared<JoinObserver>(std::move(about));
  if (!config.trace_folder.empty()) join->observer.start_trace(config.trace_folder);
  if (!config.metrics.empty()) join->observer.start_metrics();
  if (!config.metrics.empty() && config.metrics != "on") {
    join->output = std::make_unique<MetricsOutput>(join->observer, config.metrics);
  }
  return {join, &join->observer};
}

void check_outputs(const Config& config) {
  const auto folder = [](const char* what, const std::string& path) {
    const std::string why = OutputFolder::problem(path, OutputFolder::Missing::kMake);
    if (!why.empty()) throw Exception(ErrorCode::kSystem, fmt::format("{}: {}: {}", what, path, why));
  };
  if (!config.trace_folder.empty()) folder("RONDO_TRACE", config.trace_folder);
  if (!config.metrics.empty() && config.metrics != "on") folder(kMetrics, config.metrics);
}

MetricsOutput::MetricsOutput(const Observer& observer, const std::string& folder)
    : observer_(observer),
      folder_(kMetrics, folder, OutputFolder::Missing::kMake),
      file_(fmt::format("rondo-rank-{}.prom", observer.about().rank)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      pid_(getpid()) {
  if (!stop_.valid()) throw Exception(system_error("RONDO_METRICS: a descriptor for the thread's end", errno));
  write_file();
  thread_ = start_own_thread("rondo-metrics", [this] { run(); });
}

MetricsOutput::~MetricsOutput() {
  if (getpid() != pid_) {
    std::construct_at(&thread_);  // the parent's; a thread of the child's own may have its number
    return;
  }
  const uint64_t one = 1;
  // Makes stop_ readable, which ends the thread's poll(). It cannot fail: the counter of an eventfd has room for a 1.
  static_cast<void>(!write(stop_.get(), &one, sizeof(one)));
  thread_.join();
  write_or_warn();
}

// Writes a file beside it first, and renames that, so that no reader sees half of the text.
void MetricsOutput::write_file() const {
  const Descriptor file = folder_.create(file_, 0644);
  if (!write_whole(file.get(), prometheus_text(*observer_.metrics(), observer_.about().rank))) {
    const int number = errno;
    folder_.remove_part(file_);
    throw Exception(system_error(fmt::format("{}: {}", kMetrics, file_), number));
  }
  folder_.publish(file_);
}

// An error here is a warning, given once until a file can be written again: no result of the program depends on
// it.
void MetricsOutput::write_or_warn() {
  try {
    write_file();
    warned_ = false;
  } catch (...) {
    if (!std::exchange(warned_, true)) Logger("warn", observer_.about().rank).warn(caught().message);
  }
}

// Ends when stop_ is readable, or if poll() fails. All signals are blocked on this thread.
void MetricsOutput::run() {
  pollfd stop{stop_.get(), POLLIN, 0};
  while (poll(&stop, 1, kFileIntervalMs) == 0) write_or_warn();
}

}  // namespace rondo
