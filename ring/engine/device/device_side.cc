#include "ring/engine/device/device_side.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace rondo {
namespace {

// How often close() lets streams go that have come to calls of this rank meanwhile.
constexpr std::chrono::milliseconds kBetweenLettingGo{5};

}  // namespace

const char* DeviceSide::call_name(std::span<const BatchCall> calls) {
  return calls.size() > 1 ? "all_reduce_many" : collective_name(calls.front().call.collective);
}

// A stream that is being captured is refused here; run() treats it before (capture).
StreamFacts DeviceSide::check_stream(const DeviceDriver& driver, const std::string& call, void* stream) const {
  StreamFacts facts{};
  if (const DeviceStatus status = driver.stream_facts(stream, &facts)) {
    fail_if_broken();
    throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: {} is no stream of this process: {}", call,
                                                     group_.rank(), stream, driver.error_text(status)));
  }
  if (facts.capturing) {
    throw Exception(
        ErrorCode::kUnsupported,
        fmt::format(
            "{} on rank {}: the stream is being captured for a graph, which only collectives without a Work can "
            "be part of, after attach_device()",
            call, group_.rank()));
  }
  return facts;
}

// A device that has failed refuses whatever it is asked. That is no mistake of the caller's, so the
// communicator fails on all ranks.
void DeviceSide::fail_if_broken() const {
  if (!attached_.load(std::memory_order_acquire)) return;
  const std::optional<Error> error = calls_->broken(StreamCalls::Look::kNow);
  if (!error) return;
  group_.context().fail(*error);
  group_.context().check_usable();
}

// Managed memory passes: any device reaches it.
void DeviceSide::check_device(const std::string& call, const StreamFacts& stream, const NamedBuffer& memory) const {
  PointerFacts facts{};
  const DeviceStatus status = driver().pointer_facts(device_, memory.data, &facts);
  if (status != 0) fail_if_broken();
  driver().check(status, "asking for a pointer's memory");
  const auto refuse = [&](const std::string& why) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("{} on rank {}: {} {} {}", call, group_.rank(), memory.name, memory.data, why));
  };
  if (facts.kind == MemoryKind::kHost) {
    refuse("is host memory; with CallOptions::stream every buffer of the call is memory of the stream's device");
  }
  if (facts.kind == MemoryKind::kDevice && facts.device != stream.device) {
    refuse(fmt::format("is memory of device {}, and the stream is of device {}", facts.device, stream.device));
  }
}

void DeviceSide::check_buffers(const std::string& name, const BatchCall& call, const StreamFacts& stream) const {
  const Piece whole = whole_piece(call.call, call.buffers, group_.rank(), group_.size());
  if (!whole.in.empty()) check_device(name, stream, {"input", call.buffers.input});
  const bool in_place = !whole.in.empty() && call.buffers.input == call.buffers.output;
  if (!whole.out.empty() && !in_place) check_device(name, stream, {"output", call.buffers.output});
}

void DeviceSide::check_host(const char* call, const void* data) const {
  if (!attached_.load(std::memory_order_acquire) || data == nullptr) return;
  PointerFacts facts{};
  if (driver().pointer_facts(device_, data, &facts) != 0 || facts.kind != MemoryKind::kDevice) return;
  throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: {} is memory of device {}; give CallOptions::stream",
                                                   call, group_.rank(), data, facts.device));
}

void DeviceSide::check_host(const Call& call) const {
  check_host(collective_name(call.collective), call.input);
  check_host(collective_name(call.collective), call.output);
  // Not while another thread puts a call into a stream: neither comes behind the other.
  const std::unique_lock order(order_mutex_, std::try_to_lock);
  if (order.owns_lock() && last_ && !last_->done()) last_->ring_at_end();
}

void DeviceSide::refuse_unsupported(const CheckedCall& call) const {
  const auto refuse = [&](const std::string& why) {
    throw Exception(ErrorCode::kUnsupported,
                    fmt::format("{} on rank {}: {}", collective_name(call.collective), group_.rank(), why));
  };
  if (call.op == Op::kUser || collective_scans(call.collective)) {
    refuse("scans and operations of the program's are for host memory, not a stream");
  }
  if (call.coded()) {
    refuse(fmt::format("calls on a stream have no wire format ({} was asked for)", wire_format_name(call.wire)));
  }
}

// What a call with a stream needs before its checks: a form that streams have, the device, and a thread that
// moves it.
void DeviceSide::prepare(std::span<const BatchCall> calls) {
  refuse_unsupported(calls.front().call);
  attach_for(call_name(calls), calls.front().call.timeout, &*calls.front().stream);
  group_.ready_worker();
}

DeviceSide::Checked DeviceSide::checked(std::span<const BatchCall> calls, const StreamFacts& stream) {
  const char* const name = call_name(calls);
  for (const BatchCall& part : calls) check_buffers(name, part, stream);
  Checked checked{calls, stream, calls.size() > 1 ? group_.calls().lists().list_of(calls) : nullptr,
                  algorithm_of(calls)};
  if (!checked.staged()) check_own_stream(name, stream);
  return checked;
}

void DeviceSide::close(Clock::time_point until) {
  if (!attached_.load(std::memory_order_acquire)) return;
  // Until then streams that come to calls of this rank are let go, again and again.
  bool over = false;
  while (!(over = calls_->wait_for_all(std::min(until, Clock::now() + kBetweenLettingGo))) && Clock::now() < until) {
    if (island_) island_->let_go(Clock::now());
  }
  if (!over) return;
  {
    std::lock_guard order(order_mutex_);
    last_ = nullptr;  // it has an event
  }
  calls_->free_all();
  if (island_) island_->close();
  for (void* const data : std::exchange(plain_, {})) driver().release(device_, data);
}

}  // namespace rondo
