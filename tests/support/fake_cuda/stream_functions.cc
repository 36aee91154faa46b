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

void StreamCreate(Stream* stream, unsigned flags) {
  require(flags <= kStreamNonBlocking);
  const std::lock_guard lock(fake().mutex);
  auto made = fake().make_stream(&current_context(), flags == 0);
  *stream = made.get();
  fake().streams[*stream] = std::move(made);
}
void StreamQuery(Stream handle) {
  FakeStream& stream = stream_at(handle);
  FakeQueue& queue = fake().queue_of(stream);
  require(queue.has_run(&stream, queue.added(&stream)), kNotReady);
}
void StreamSynchronize(Stream handle) {
  FakeStream& stream = stream_at(handle);
  fake().queue_of(stream).synchronize(&stream);
  current_context();
}
void StreamDestroy(Stream handle) {
  FakeStream& stream = stream_at(handle);
  fake().queue_of(stream).synchronize(&stream);
  destroy_graph(stream);
  const std::lock_guard lock(fake().mutex);
  require(fake().streams.erase(handle) == 1, kInvalidHandle);
}
void StreamGetCtx(Stream handle, Context* context) {
  const std::lock_guard lock(fake().mutex);
  *context = reinterpret_cast<Context>(stream_of(handle)->context);
}
void StreamGetId(Stream handle, unsigned long long* id) { *id = stream_at(handle).id; }
void StreamGetCaptureInfo(Stream handle, int* status, uint64_t* id, Graph* graph, const void** dependencies,
                          const void** edges, size_t* count) {
  require(dependencies == nullptr && edges == nullptr && count == nullptr);
  FakeStream& stream = stream_at(handle);
  *status = static_cast<int>(stream.capture);
  if (stream.capture == Capture::kActive) {
    *id = stream.id << 32 | stream.captures;
    *graph = reinterpret_cast<Graph>(&stream);
  }
  if (&stream != stream.context->legacy.get()) return;
  const std::lock_guard lock(fake().mutex);
  for (const auto& [other, known] : fake().streams) {
    require(known->context != stream.context || !known->blocks || known->capture != Capture::kActive, kCaptureImplicit);
  }
}

// --- graphs
namespace {

void drop(FakeUserObject* object) {
  if (--object->references > 0) return;
  FakeQueue::run_as_entry([object] { object->destroy(object->data); });
  delete object;
}

}  // namespace

void UserObjectCreate(UserObject* object, void* data, HostFunction destroy, unsigned references, unsigned flags) {
  require(references == 1 && flags == kNoDestructorSync);
  *object = reinterpret_cast<UserObject>(new FakeUserObject{destroy, data, references});
}
void UserObjectRelease(UserObject object, unsigned references) {
  require(references == 1);
  drop(reinterpret_cast<FakeUserObject*>(object));
}
void GraphRetainUserObject(Graph graph, UserObject object, unsigned references, unsigned flags) {
  require(graph != nullptr && references == 1 && flags == kGraphMove);
  reinterpret_cast<FakeStream*>(graph)->kept.push_back(reinterpret_cast<FakeUserObject*>(object));
}

}  // namespace rondo::testing::functions

void rondo::testing::destroy_graph(FakeStream& stream) {
  stream.graph.clear();
  for (FakeUserObject* object : std::exchange(stream.kept, {})) functions::drop(object);
}

// --- events
namespace rondo::testing::functions {
namespace {

std::shared_ptr<FakeEvent> event_at(Event event) {
  const std::lock_guard lock(fake().mutex);
  const auto found = fake().events.find(event);
  require(found != fake().events.end(), kInvalidHandle);
  return found->second;
}

}  // namespace

void EventCreate(Event* event, unsigned flags) {
  require(flags == 0 || flags == kEventDisableTiming);
  const auto made = std::make_shared<FakeEvent>(&current_context(), flags == 0);
  *event = reinterpret_cast<Event>(made.get());
  const std::lock_guard lock(fake().mutex);
  fake().events[*event] = made;
}
void EventDestroy(Event event) {
  require(event_at(event)->context == &current_context(), kInvalidHandle);
  const std::lock_guard lock(fake().mutex);
  fake().events.erase(event);
}
void EventRecord(Event event, Stream handle) {
  FakeStream& stream = stream_at(handle);
  const auto at = event_at(event);
  require(at->context == stream.context, kInvalidHandle);
  require(setting("FAKE_CUDA_RECORDS", 1) != 0, kOutOfMemory);
  put(stream, [at, number = ++at->recorded](const FakeContext&) {
    const std::lock_guard lock(at->mutex);
    at->passed = number;
    at->when = std::chrono::steady_clock::now();
    at->changed.notify_all();
  });
}
void EventElapsedTime(float* milliseconds, Event first, Event second) {
  const std::shared_ptr<FakeEvent> both[] = {event_at(first), event_at(second)};
  for (const auto& event : both) {
    const std::lock_guard lock(event->mutex);
    require(event->timed && event->recorded > 0, kInvalidHandle);
    require(event->passed == event->recorded, kNotReady);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(both[1]->when - both[0]->when).count();
}
// The event may be of another context, too.
void StreamWaitEvent(Stream stream, Event event, unsigned flags) {
  require(flags == 0);
  const auto at = event_at(event);
  put(stream_at(stream), [at, number = at->recorded.load()](const FakeContext&) {
    std::unique_lock lock(at->mutex);
    const auto over = [&] { return at->passed >= number || at->context->error.load() != kSuccess; };
    while (!at->changed.wait_for(lock, std::chrono::milliseconds(100), over)) continue;
  });
}
void LaunchHostFunc(Stream stream, HostFunction function, void* argument) {
  put(stream_at(stream), [function, argument](const FakeContext&) { function(argument); });
}
void StreamBatchMemOp(Stream handle, unsigned count, MemoryOperation* operations, unsigned flags) {
  constexpr unsigned kMost = 256;
  require(setting("FAKE_CUDA_MEMORY_OPERATIONS", 1) != 0, kNotSupported);
  require(count > 0 && count <= kMost && flags == 0);
  const std::vector<MemoryOperation> all(operations, operations + count);
  for (const MemoryOperation& op : all) {
    require(op.flags == 0 && op.operation == kWaitValue32 && op.address % sizeof(uint32_t) == 0);
  }
  put(stream_at(handle), [all](const FakeContext& in) {
    for (const MemoryOperation& op : all) run_word(in, op);
  });
}

}  // namespace rondo::testing::functions
