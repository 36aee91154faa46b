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
  const std::lock_guard lock(mutex_);
  if (busy_.fetch_add(1) > 0) both_.fetch_add(1);
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::nanoseconds(bytes * 1000 / static_cast<size_t>(rate));
  move();
  std::this_thread::sleep_until(end);
  busy_.fetch_sub(1);
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

Result find_context(FakeContext*& context) {
  const std::vector<FakeContext*>& current = here().current;
  if (current.empty() || current.back() == nullptr) return kInvalidContext;
  context = current.back();
  return context->error.load();
}

Result end_captures() {
  const CaptureMode own = here().capture_mode;
  if (own == kCaptureRelaxed) return kSuccess;
  const std::lock_guard lock(fake().mutex);
  Result result = kSuccess;
  for (auto& [handle, stream] : fake().streams) {
    if (stream->capture != Capture::kActive || stream->mode == kCaptureRelaxed) continue;
    const bool mine = stream->thread == std::this_thread::get_id();
    if (!mine && (stream->mode != kCaptureGlobal || own != kCaptureGlobal)) continue;
    stream->capture = Capture::kInvalid;
    result = kCaptureUnsupported;
  }
  return result;
}

FakeStream* stream_of(Stream handle) {
  const auto found = fake().streams.find(handle);
  RONDO_CHECK(found != fake().streams.end(), "a stream that is none");
  return found->second.get();
}

Result find_stream(Stream handle, FakeStream*& stream) {
  FakeContext* context = nullptr;
  if (const Result failed = find_context(context)) return failed;
  const auto number = reinterpret_cast<uintptr_t>(handle);
  const std::lock_guard lock(fake().mutex);
  if (number == kStreamPerThread) {
    FakeStream*& own = here().streams[context];
    if (own == nullptr) {
      auto made = fake().make_stream(context, true);
      own = made.get();
      fake().streams[own] = std::move(made);
    }
    return stream = own, kSuccess;
  }
  if (number <= kStreamLegacy) return stream = context->legacy.get(), kSuccess;
  const auto found = stream_of(handle);
  if (found->context != context) return kInvalidHandle;
  return stream = found, kSuccess;
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

Result put(FakeStream& stream, Entry entry, FakeQueue::Entry kind) {
  if (stream.capture != Capture::kNone) return stream.graph.emplace_back(std::move(entry), kind), kSuccess;
  const auto run = [entry = std::move(entry), &stream, added = here().now, marks = marks_before(stream)] {
    for (const Mark& mark : marks) mark.wait();
    stream.now = std::max(stream.now.load(), added);
    if (stream.context->error.load() == kSuccess) entry(stream);
  };
  fake().queue_of(stream).add(&stream, run, kind);
  return kSuccess;
}

Result put_into(Stream handle, Entry entry) {
  FakeStream* stream = nullptr;
  if (const Result failed = find_stream(handle, stream)) return failed;
  return put(*stream, std::move(entry));
}

void move_bytes(const void* to, const void* from, size_t bytes, const std::function<void()>& move) {
  const bool from_device = fake().memory.home_of(from) >= 0, to_device = fake().memory.home_of(to) >= 0;
  if (from_device == to_device) return move();
  (to_device ? fake().to_device : fake().to_host).run(bytes, move);
}

}  // namespace rondo::testing
