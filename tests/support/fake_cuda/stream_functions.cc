// Functions of the fake driver: streams and events, and what is put into streams.
#include "tests/support/fake_cuda/functions.h"

namespace rondo::testing::functions {
namespace {

void run_word(const FakeContext& context, const MemoryOperation& op) {
  std::byte* const at = fake().memory.reach(pointer(op.address), sizeof(uint32_t), context.device, By::kKernel);
  const std::atomic_ref<uint32_t> word(*reinterpret_cast<uint32_t*>(at));
  const auto value = static_cast<uint32_t>(op.value);
  while (static_cast<int32_t>(word.load(std::memory_order_acquire) - value) < 0 && context.error.load() == kSuccess) {
    FakeQueue::let_others_run(std::chrono::microseconds(50));
  }
}

}  // namespace

Result StreamCreate(Stream* stream, unsigned flags) {
  FakeContext* const context = here().current.back();
  if (flags > kStreamNonBlocking) return kInvalidValue;
  const std::lock_guard lock(fake().mutex);
  auto made = fake().make_stream(context, flags == 0);
  *stream = made.get();
  fake().streams[*stream] = std::move(made);
  return kSuccess;
}
Result StreamQuery(Stream handle) {
  FakeStream* stream = nullptr;
  if (const Result failed = find_stream(handle, stream)) return failed;
  FakeQueue& queue = fake().queue_of(*stream);
  return queue.has_run(stream, queue.added(stream)) ? kSuccess : kNotReady;
}
Result StreamSynchronize(Stream handle) {
  FakeStream* stream = nullptr;
  if (const Result failed = find_stream(handle, stream)) return failed;
  fake().queue_of(*stream).synchronize(stream);
  here().now = std::max(here().now, stream->now.load());
  return stream->context->error.load();
}
Result StreamDestroy(Stream handle) {
  FakeStream* stream = nullptr;
  if (const Result failed = find_stream(handle, stream)) return failed;
  fake().queue_of(*stream).synchronize(stream);
  const std::lock_guard lock(fake().mutex);
  return fake().streams.erase(handle) == 1 ? kSuccess : kInvalidHandle;
}
Result StreamGetCtx(Stream handle, Context* context) {
  const std::lock_guard lock(fake().mutex);
  return *context = reinterpret_cast<Context>(stream_of(handle)->context), kSuccess;
}
Result StreamGetId(Stream handle, unsigned long long* id) {
  FakeStream* stream = nullptr;
  if (const Result failed = find_stream(handle, stream)) return failed;
  return *id = stream->id, kSuccess;
}
Result StreamIsCapturing(Stream handle, int* status) {
  FakeStream* stream = nullptr;
  *status = 0;
  if (const Result failed = find_stream(handle, stream)) return failed;
  *status = static_cast<int>(stream->capture);
  if (stream != stream->context->legacy.get()) return kSuccess;
  const std::lock_guard lock(fake().mutex);
  for (const auto& [other, known] : fake().streams) {
    if (known->context == stream->context && known->blocks && known->capture == Capture::kActive) {
      return kCaptureImplicit;
    }
  }
  return kSuccess;
}
bool is_event(Event event) {
  const std::lock_guard lock(fake().mutex);
  return fake().events.count(of(event)) == 1;
}
Result EventCreate(Event* event, unsigned flags) {
  FakeContext* const context = here().current.back();
  if (flags != 0 && flags != kEventDisableTiming) return kInvalidValue;
  auto* const made = new FakeEvent(context, flags == 0);
  *event = reinterpret_cast<Event>(made);
  const std::lock_guard lock(fake().mutex);
  fake().events.insert(made);
  return kSuccess;
}
Result EventDestroy(Event event) {
  FakeContext* const context = here().current.back();
  if (!is_event(event) || of(event)->context != context) return kInvalidHandle;
  const std::lock_guard lock(fake().mutex);
  fake().events.erase(of(event));
  fake().retired.emplace_back(of(event));
  return kSuccess;
}
Result EventRecord(Event event, Stream handle) {
  FakeStream* stream = nullptr;
  if (const Result failed = find_stream(handle, stream)) return failed;
  if (!is_event(event) || of(event)->context != stream->context) return kInvalidHandle;
  FakeEvent* const at = of(event);
  uint64_t number = 0;
  {
    const std::lock_guard lock(at->mutex);
    number = ++at->recorded;
  }
  return put(*stream, [at, number](const FakeStream& in) {
    const std::lock_guard lock(at->mutex);
    at->passed = number;
    at->time = in.now;
    at->when = std::chrono::steady_clock::now();
    at->changed.notify_all();
  });
}
Result EventElapsedTime(float* milliseconds, Event first, Event second) {
  FakeEvent* const both[] = {of(first), of(second)};
  if (!is_event(first) || !is_event(second) || !both[0]->timed || !both[1]->timed) return kInvalidHandle;
  for (FakeEvent* event : both) {
    const std::lock_guard lock(event->mutex);
    if (event->recorded == 0) return kInvalidHandle;
    if (event->passed < event->recorded) return kNotReady;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(both[1]->when - both[0]->when).count();
  return kSuccess;
}
// Of another context, too.
Result StreamWaitEvent(Stream stream, Event event, unsigned flags) {
  if (flags != 0) return kInvalidValue;
  if (!is_event(event)) return kInvalidHandle;
  FakeEvent* const at = of(event);
  uint64_t number = 0;
  {
    const std::lock_guard lock(at->mutex);
    number = at->recorded;
  }
  return put_into(stream, [at, number](FakeStream& in) {
    std::unique_lock lock(at->mutex);
    const auto over = [&] { return at->passed >= number || at->context->error.load() != kSuccess; };
    while (!at->changed.wait_for(lock, std::chrono::milliseconds(100), over)) continue;
    in.now = std::max(in.now.load(), at->time);
  });
}
Result LaunchHostFunc(Stream stream, HostFunction function, void* argument) {
  return put_into(stream, [function, argument](FakeStream& in) {
    in.now += virtual_time::kFunction;
    sleep_us(setting("FAKE_CUDA_FUNCTION_US", 0));
    function(argument);
  });
}
Result StreamBatchMemOp(Stream handle, unsigned count, MemoryOperation* operations, unsigned flags) {
  constexpr unsigned kMost = 256;
  if (count == 0 || count > kMost || flags != 0) return kInvalidValue;
  const std::vector<MemoryOperation> all(operations, operations + count);
  for (const MemoryOperation& op : all) {
    if (op.flags != 0 || op.operation != kWaitValue32) return kInvalidValue;
    if (op.address % sizeof(uint32_t) != 0) return kInvalidValue;
  }
  FakeStream* stream = nullptr;
  if (const Result failed = find_stream(handle, stream)) return failed;
  return put(*stream, [all](const FakeStream& in) {
    for (const MemoryOperation& op : all) run_word(*in.context, op);
  });
}

}  // namespace rondo::testing::functions
