#include "ring/engine/observe/observer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <utility>

#include "ring/base/host_name.h"
#include "ring/base/json_text.h"

namespace rondo {
namespace {

// The number of a communicator's first operation (transport/fabric.h), which no program has called: metrics
// leave it out.
constexpr uint64_t kMeeting = 1;

TracePath path_of(const Ref& ref) {
  if (ref.space == Space::kMailbox) return TracePath::kLink;
  if ((ref.flags & kTurns) != 0) return TracePath::kPost;
  return (ref.flags & kStaging) != 0 ? TracePath::kStaging : TracePath::kPeerMemory;
}

TraceRecord record_of(TraceKind kind, uint32_t communicator, uint64_t number, const Observer::Span& span) {
  TraceRecord record;
  record.kind = kind;
  record.begin = span.begin;
  record.end = span.end;
  record.communicator = communicator;
  record.number = number;
  return record;
}

template <typename Names>
// A JSON list of the names of 0 .. count - 1.
std::string names(int count, Names name) {
  std::string out;
  for (int i = 0; i < count; ++i) out += fmt::format("{}{}", i > 0 ? "," : "", json_text(name(i)));
  return "[" + out + "]";
}

// Names the clock of this rank: ranks with equal names read one CLOCK_MONOTONIC, so their traces need no
// alignment.
std::string clock_name() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char zone[64] = "";
  const ssize_t length = readlink("/proc/thread-self/ns/time", zone, sizeof(zone) - 1);
  return boot + "/" + std::string(zone, length > 0 ? static_cast<size_t>(length) : 0);
}

}  // namespace

// The first line of a trace: where the rank is, both clocks at one moment, and the names behind the numbers in
// records.
std::string Observer::about_line() const {
  const auto wall =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return fmt::format(
      R"({{"what":"rank","rank":{},"world":{},"local_rank":{},"node":{},"name":{},"host":{},"pid":{},"clock":{},)"
      R"("hosts":[{}],"monotonic_ns":{},"wall_ns":{},"collectives":{},"algorithms":{},"dtypes":{},"operators":{},)"
      R"("errors":{},"settings":{}}})",
      about_.rank, about_.world, about_.local_rank, about_.node, json_text(about_.name), json_text(host_name()),
      getpid(), json_text(clock_name()), fmt::join(about_.host, ","), now(), wall,
      names(kCollectives, [](int i) { return collective_name(static_cast<Collective>(i)); }),
      names(kAlgorithms, [](int i) { return algorithm_name(static_cast<Algorithm>(i)); }),
      names(kDTypes, [](int i) { return dtype_name(static_cast<DType>(i)); }),
      names(kOps + 1, [](int i) { return op_name(i < kOps ? static_cast<Op>(i) : Op::kUser); }),
      names(kErrorCodes, [](int i) { return error_code_name(static_cast<ErrorCode>(i)); }), json_text(about_.settings));
}

// The new trace is visible before the old one is let go. A hook may still be writing into the old one, so it
// stays mapped (TraceFile::let_go).
//
// The file is made before mutex_ is taken: that may take seconds on a slow disk, and the fabric's I/O thread takes
// mutex_ in failed().
void Observer::start_trace(const std::string& folder) {
  std::lock_guard one_at_a_time(start_mutex_);
  auto trace = std::make_unique<TraceFile>(folder, about_.rank, about_.trace_bytes);
  trace->say(about_line());
  std::lock_guard lock(mutex_);
  for (const std::string& line : lines_) trace->say(line);
  traces_.push_back(std::move(trace));
  TraceFile* const ended = trace_.exchange(traces_.back().get());
  for (auto& said : reasons_said_) said.store(false);  // now, or a reason that comes meanwhile is in neither trace
  on_.store(true);
  if (ended != nullptr) ended->let_go();
}

void Observer::stop_trace() {
  std::lock_guard lock(mutex_);
  TraceFile* const ended = trace_.exchange(nullptr);
  on_.store(own_metrics_ != nullptr);
  if (ended != nullptr) ended->let_go();
}

Metrics& Observer::start_metrics() {
  std::lock_guard lock(mutex_);
  if (!own_metrics_) own_metrics_ = std::make_unique<Metrics>(about_.world);
  metrics_.store(own_metrics_.get(), std::memory_order_release);
  on_.store(true);
  return *own_metrics_;
}

void Observer::say(const std::string& line) {
  if (TraceFile* trace = trace_.load(std::memory_order_acquire)) trace->say(line);
}

// The list of members is stored with release before its number is used in a hook, which reads it without a
// lock.
uint32_t Observer::communicator(uint64_t id, const std::vector<int>& members) {
  std::lock_guard lock(mutex_);
  const uint32_t number = std::min(communicators_++, kMostCommunicators - 1);
  failed_.resize(size_t{number} + 1);
  members_[number].store(&*kept_members_.insert(members).first, std::memory_order_release);
  std::string line = fmt::format(R"({{"what":"communicator","number":{},"id":"{:016x}","members":[{}]}})", number, id,
                                 fmt::join(members, ","));
  say(line);
  if (lines_.size() < kMostCommunicators) lines_.push_back(std::move(line));
  return number;
}

int Observer::world_rank(uint32_t communicator, int peer) const {
  const std::vector<int>* members = members_[communicator].load(std::memory_order_acquire);
  if (members == nullptr || peer < 0 || static_cast<size_t>(peer) >= members->size()) return -1;
  const int rank = (*members)[static_cast<size_t>(peer)];
  return rank < about_.world ? rank : -1;
}

void Observer::failed(uint32_t communicator, const Error& error) {
  std::lock_guard lock(mutex_);
  if (std::exchange(failed_[communicator], char{1}) != 0) return;
  if (Metrics* metrics = metrics_.load()) count(metrics->errors[static_cast<size_t>(error.code)]);
  say(fmt::format(R"({{"what":"failure","communicator":{},"at":{},"code":{},"message":{},"ranks":[{}]}})", communicator,
                  now(), json_text(error_code_name(error.code)), json_text(error.message),
                  fmt::join(error.ranks, ",")));
}

void Observer::began(uint32_t communicator, uint64_t number, uint64_t at, const Call& call) {
  TraceRecord record = record_of(TraceKind::kBegin, communicator, number, {at, at});
  record.bytes = call.bytes;
  record.peer = call.root;
  record.a = static_cast<uint8_t>(call.collective);
  record.b = static_cast<uint8_t>(call.dtype);
  record.c = static_cast<uint8_t>(std::min(static_cast<int>(call.op), kOps));  // the last one: kUser
  put(record);
}

void Observer::routed(uint32_t communicator, uint64_t number, const Call& call, const Reason& reason, uint8_t medium,
                      uint64_t predicted_ns) {
  if (!tracing()) return;
  if (!reasons_said_[reason.number % kReasons].exchange(true, std::memory_order_relaxed)) {
    say(fmt::format(R"({{"what":"reason","number":{},"text":{}}})", reason.number, json_text(reason.text)));
  }
  TraceRecord record = record_of(TraceKind::kRoute, communicator, number, {0, predicted_ns});
  record.a = static_cast<uint8_t>(call.algorithm);
  record.b = reason.number;
  record.c = medium;
  put(record);
}

// Metrics count only calls of the program that have succeeded; the trace has all.
void Observer::ended(uint32_t communicator, uint64_t number, const Span& span, const Call& call, ErrorCode code) {
  TraceRecord record = record_of(TraceKind::kEnd, communicator, number, span);
  record.bytes = call.bytes;
  record.a = static_cast<uint8_t>(code);
  record.b = static_cast<uint8_t>(call.collective);
  record.c = static_cast<uint8_t>(call.algorithm);
  put(record);
  Metrics* metrics = metrics_.load(std::memory_order_acquire);
  if (metrics == nullptr || code != ErrorCode::kOk || number <= kMeeting) return;
  Metrics::Operations& operations = metrics->operations[static_cast<size_t>(call.collective)];
  const uint64_t took = span.end - span.begin;
  count(operations.by_algorithm[static_cast<size_t>(call.algorithm)]);
  count(operations.bytes, call.bytes);
  count(operations.nanoseconds, took);
  count(operations.durations[Metrics::bucket_of(took)]);
}

void Observer::stopped(uint32_t communicator, uint64_t number, const Span& span) {
  put(record_of(TraceKind::kStopped, communicator, number, span));
  if (Metrics* metrics = metrics_.load(std::memory_order_acquire)) {
    count(metrics->stopped_nanoseconds, span.end - span.begin);
  }
}

void Observer::message(uint32_t communicator, TraceRecord record, ErrorCode code) {
  record.kind = TraceKind::kMessage;
  record.communicator = communicator;
  record.end = now();
  record.b = static_cast<uint8_t>(code);
  put(record);
  Metrics* metrics = metrics_.load(std::memory_order_acquire);
  const int peer = metrics != nullptr ? world_rank(communicator, record.peer) : -1;
  if (peer < 0 || code != ErrorCode::kOk) return;
  count(metrics->peer(peer).messages[record.a]);
  count(metrics->peer(peer).message_bytes[record.a], record.bytes);
}

void Observer::waited(const TraceRecord& wait) {
  put(wait);
  Metrics* metrics = metrics_.load(std::memory_order_acquire);
  const int peer = metrics != nullptr ? world_rank(wait.communicator, wait.peer) : -1;
  if (peer >= 0) count(metrics->peer(peer).wait_nanoseconds, wait.end - wait.begin);
}

// Whether the reference moves bytes between ranks: a rank's own staging memory does not.
bool Observer::is_transfer(uint32_t communicator, const Ref& ref) const {
  return is_remote(ref) && world_rank(communicator, ref.peer) != about_.rank;
}

// Records a step and its transfers. Their places are reserved by one addition, since an atomic addition waits
// for all earlier stores.
void Observer::stepped(const TraceRecord& step, std::span<const Ref> sources, std::span<const Ref> targets) {
  TraceFile* trace = trace_.load(std::memory_order_acquire);
  Metrics* metrics = metrics_.load(std::memory_order_acquire);
  const auto counts = [&](const Ref& ref) { return is_transfer(step.communicator, ref); };
  const auto transfers =
      std::count_if(sources.begin(), sources.end(), counts) + std::count_if(targets.begin(), targets.end(), counts);
  uint64_t index = trace != nullptr ? trace->reserve(1 + static_cast<uint64_t>(transfers)) : 0;
  if (trace != nullptr) trace->put_at(index++, step);
  TraceRecord transfer = step;
  transfer.kind = TraceKind::kTransfer;
  const auto tell = [&](std::span<const Ref> refs, TraceDirection direction) {
    transfer.a = static_cast<uint8_t>(direction);
    for (const Ref& ref : refs) {
      if (!counts(ref)) continue;
      transfer.peer = ref.peer;
      transfer.b = static_cast<uint8_t>(path_of(ref));
      if (trace != nullptr) trace->put_at(index++, transfer);
      const int peer = metrics != nullptr ? world_rank(step.communicator, ref.peer) : -1;
      if (peer >= 0) count(metrics->peer(peer).bytes[transfer.a], transfer.bytes);
    }
  };
  tell(sources, TraceDirection::kIn);
  tell(targets, TraceDirection::kOut);
}

}  // namespace rondo
