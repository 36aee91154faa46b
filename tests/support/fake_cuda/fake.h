#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/memory.h"
#include "tests/support/fake_cuda/queue.h"

// All of this process's driver: devices, contexts, streams and events, and what the calling thread has of them.
// Settings are those of fake_cuda.cc.
namespace rondo::testing {

using namespace cuda;
using By = FakeMemory::By;

// What a function of the driver refuses, and why: who has called it gets that.
struct Refused {
  Result why;
};
inline void require(bool so, Result otherwise = kInvalidValue) {
  if (!so) throw Refused{otherwise};
}

int setting(const char* name, int otherwise);
// Whether a setting that lists words has this one; unset: otherwise.
bool lists(const char* name, const std::string& word, bool otherwise);
bool maps(int device, int other);  // FAKE_CUDA_PEERS
inline bool is_device(Device device) { return device >= 0 && device < setting("FAKE_CUDA_COUNT", 2); }
inline void sleep_us(int microseconds) { std::this_thread::sleep_for(std::chrono::microseconds(microseconds)); }

// What moves bytes between host and device one way.
struct CopyEngine {
  // Runs `move`, and returns when an engine of the setting's rate has moved the bytes.
  void run(size_t bytes, const std::function<void()>& move);
  std::mutex mutex;
};

struct FakeContext;
// What a stream runs.
using Entry = std::function<void(const FakeContext& context)>;

// What UserObjectCreate makes.
struct FakeUserObject {
  HostFunction destroy;  // must not use the driver
  void* data;
  unsigned references;
};

enum class Capture { kNone, kActive, kInvalid };
// It is the graph of its capture, too.
struct FakeStream {
  FakeStream(FakeContext* of, bool waits, size_t in, uint64_t number)
      : context(of), blocks(waits), queue(in), id(number) {}
  FakeContext* const context;
  const bool blocks;  // waits for the legacy stream, and that for it
  const size_t queue;
  const uint64_t id;
  Capture capture = Capture::kNone;
  CaptureMode mode = kCaptureGlobal;  // of the capture, which a thread has begun
  std::thread::id thread;
  std::vector<std::pair<Entry, FakeQueue::Entry>> graph;  // what has been captured
  uint64_t captures = 0;
  std::vector<FakeUserObject*> kept;  // by the graph
};
// The graph of the stream is destroyed. Without the driver's lock.
void destroy_graph(FakeStream& stream);

// The primary one of a device.
struct FakeContext {
  int device = 0;
  std::atomic<Result> error{kSuccess};  // it stays
  std::unique_ptr<FakeStream> legacy;
};

struct FakeEvent {
  FakeEvent(FakeContext* of, bool has_time) : context(of), timed(has_time) {}
  FakeContext* const context;
  const bool timed;
  std::chrono::steady_clock::time_point when;
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<uint64_t> recorded{0};
  uint64_t passed = 0;
};

struct FakeFunction {
  FakeContext* context;
  int dtype;
  bool loaded = false;
};
struct FakeModule {
  std::map<std::string, FakeFunction> functions;
};

struct Fake {
  Fake();
  FakeMemory memory;
  std::mutex mutex;
  bool started = false;
  std::map<int, FakeContext> contexts;
  std::map<void*, std::unique_ptr<FakeStream>> streams;
  std::map<Event, std::shared_ptr<FakeEvent>> events;  // shared with entries of streams
  std::vector<std::unique_ptr<FakeModule>> modules;
  std::atomic<uint64_t> made{0};  // streams
  std::atomic<int> placed{0};     // passes that have found their pointers
  CopyEngine to_host, to_device;
  std::vector<std::unique_ptr<FakeQueue>> queues;

  FakeQueue& queue_of(const FakeStream& stream) { return *queues[stream.queue]; }
  std::unique_ptr<FakeStream> make_stream(FakeContext* context, bool blocks);
};
Fake& fake();

// --- of the calling thread
struct FakeThread {
  std::vector<FakeContext*> current;
  CaptureMode capture_mode = kCaptureGlobal;
  std::map<FakeContext*, FakeStream*> streams;  // kStreamPerThread
};
FakeThread& here();

inline FakeContext* of(Context context) { return reinterpret_cast<FakeContext*>(context); }
inline const void* pointer(Pointer address) { return reinterpret_cast<const void*>(address); }
inline void* writable(Pointer address) { return reinterpret_cast<void*>(address); }

FakeContext& current_context();
// A capture that this thread has begun, or any thread in global mode, ends, as CUDA has it of calls that may wait.
void end_captures();
// Requires the lock. The driver looks where the handle points: at no stream, its process ends there.
FakeStream* stream_of(Stream handle);
// A stream of the current context.
FakeStream& stream_at(Stream handle);

// Puts an entry into a stream. After an error nothing is run any more, functions of the host neither.
void put(FakeStream& stream, Entry entry, FakeQueue::Entry kind = FakeQueue::Entry::kOther);

// Between host and device, or inside devices.
void move_bytes(const void* to, const void* from, size_t bytes, const std::function<void()>& move);

}  // namespace rondo::testing
