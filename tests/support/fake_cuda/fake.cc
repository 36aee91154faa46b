#include "tests/support/fake_cuda/fake.h"

#include <cstdlib>

#include "ring/base/check.h"

namespace rondo::testing {

int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

bool lists(const char* name, const std::string& word, bool otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : (" " + std::string(text) + " ").find(" " + word + " ") != std::string::npos;
}

bool maps(int device, int other) {
  return device == other || lists("FAKE_CUDA_PEERS", std::to_string(device) + std::to_string(other), true);
}

void CopyEngine::run(size_t bytes, const std::function<void()>& move) {
  const int rate = setting("FAKE_CUDA_COPY_MBPS", 0);
  if (rate == 0) return move();
  const std::lock_guard lock(mutex);
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::nanoseconds(bytes * 1000 / static_cast<size_t>(rate));
  move();
  std::this_thread::sleep_until(end);
}

Fake::Fake() {
  for (int i = 0; i < setting("FAKE_CUDA_QUEUES", 1); ++i) queues.push_back(std::make_unique<FakeQueue>());
}

std::unique_ptr<FakeStream> Fake::make_stream(FakeContext* context, bool blocks) {
  const uint64_t id = made.fetch_add(1);
  return std::make_unique<FakeStream>(context, blocks, id % queues.size(), id + 1);
}

Fake& fake() {
  static Fake* const one = new Fake;
  return *one;
}

FakeThread& here() {
  thread_local FakeThread thread;
  return thread;
}

FakeContext& current_context() {
  const std::vector<FakeContext*>& current = here().current;
  require(!current.empty() && current.back() != nullptr, kInvalidContext);
  const Result broken = current.back()->error;
  require(broken == kSuccess, broken);
  return *current.back();
}

void end_captures() {
  const CaptureMode own = here().capture_mode;
  if (own == kCaptureRelaxed) return;
  const std::lock_guard lock(fake().mutex);
  bool ended = false;
  for (auto& [handle, stream] : fake().streams) {
    if (stream->capture != Capture::kActive || stream->mode == kCaptureRelaxed) continue;
    const bool mine = stream->thread == std::this_thread::get_id();
    if (!mine && (stream->mode != kCaptureGlobal || own != kCaptureGlobal)) continue;
    stream->capture = Capture::kInvalid;
    ended = true;
  }
  require(!ended, kCaptureUnsupported);
}

FakeStream* stream_of(Stream handle) {
  const auto found = fake().streams.find(handle);
  RONDO_CHECK(found != fake().streams.end(), "a stream that is none");
  return found->second.get();
}

FakeStream& stream_at(Stream handle) {
  FakeContext& context = current_context();
  const auto number = reinterpret_cast<uintptr_t>(handle);
  const std::lock_guard lock(fake().mutex);
  if (number == kStreamPerThread) {
    FakeStream*& own = here().streams[&context];
    if (own == nullptr) {
      auto made = fake().make_stream(&context, true);
      own = made.get();
      fake().streams[own] = std::move(made);
    }
    return *own;
  }
  if (number <= kStreamLegacy) return *context.legacy;
  FakeStream& found = *stream_of(handle);
  require(found.context == &context, kInvalidHandle);
  return found;
}

namespace {

// What a stream has got so far.
struct Mark {
  FakeQueue* queue;
  const FakeStream* stream;
  uint64_t count;
  void wait() const {
    while (!queue->has_run(stream, count)) FakeQueue::let_others_run(std::chrono::microseconds(50));
  }
};

// What the next entry of the stream waits for by the rules of the legacy stream.
std::vector<Mark> marks_before(const FakeStream& stream) {
  std::vector<Mark> marks;
  const auto add = [&marks](const FakeStream& other) {
    FakeQueue& queue = fake().queue_of(other);
    marks.push_back({&queue, &other, queue.added(&other)});
  };
  if (fake().queues.size() == 1 || !stream.blocks) return marks;
  if (&stream != stream.context->legacy.get()) {
    add(*stream.context->legacy);
    return marks;
  }
  const std::lock_guard lock(fake().mutex);
  for (const auto& [handle, other] : fake().streams) {
    if (other->blocks && other->context == stream.context) add(*other);
  }
  return marks;
}

}  // namespace

void put(FakeStream& stream, Entry entry, FakeQueue::Entry kind) {
  if (stream.capture != Capture::kNone) return void(stream.graph.emplace_back(std::move(entry), kind));
  const auto run = [entry = std::move(entry), &stream, marks = marks_before(stream)] {
    for (const Mark& mark : marks) mark.wait();
    if (stream.context->error.load() == kSuccess) entry(*stream.context);
  };
  fake().queue_of(stream).add(&stream, run, kind);
}

void move_bytes(const void* to, const void* from, size_t bytes, const std::function<void()>& move) {
  const bool from_device = fake().memory.home_of(from) >= 0, to_device = fake().memory.home_of(to) >= 0;
  if (from_device == to_device) return move();
  (to_device ? fake().to_device : fake().to_host).run(bytes, move);
}

}  // namespace rondo::testing
