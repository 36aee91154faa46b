// Functions of the fake driver: kernels, which are run by name from the host's build of the same bodies.
#include <cstring>

#include "tests/support/fake_cuda/functions.h"
#include "tests/support/host_lane.h"

namespace rondo::testing::functions {
namespace {

// What the lanes of a kernel run on. Addresses are the program's, which only the device reaches.
class KernelRuns {
 public:
  struct Broken {};
  KernelRuns(const FakeContext& context, bool counts) : context_(context), counts_(counts) {}
  void run(DeviceFold fold) {
    const size_t bytes = fold.count * dtype_bytes(DType(fold.dtype));
    const void *const to = fold.targets[0], *const from = fold.sources[0];
    if (counts_) fake().placed.fetch_add(1);
    for (int i = 0; i < fold.target_count; ++i) cross(fold.targets[i]);
    for (int i = 0; i < fold.source_count; ++i) fold.sources[i] = reach(fold.sources[i], bytes);
    for (int i = 0; i < fold.target_count; ++i) fold.targets[i] = reach(fold.targets[i], bytes);
    move_bytes(to, from, bytes, [&] { host_fold(fold, 4); });
  }
  void pause() {
    constexpr int kYields = 50;
    if (context_.error.load() != kSuccess) throw Broken{};
    if (++pauses_ < kYields) return std::this_thread::yield();
    FakeQueue::let_others_run(std::chrono::microseconds(50));
  }
  std::byte* reach(const void* at, size_t bytes) const {
    return fake().memory.reach(at, bytes, context_.device, By::kKernel);
  }

 private:
  void cross(const void* to) const {
    const int home = fake().memory.home_of(to);
    if (home >= 0 && home != context_.device) sleep_us(setting("FAKE_CUDA_PASS_US", 0));
  }
  const FakeContext& context_;
  const bool counts_;
  int pauses_ = 0;
};

void run_call(const FakeContext& context, DeviceCall call, uint32_t lanes) {
  KernelRuns runs(context, call.status != nullptr);
  const auto found = [&runs](auto*& at, size_t bytes) {
    if (at != nullptr) at = reinterpret_cast<std::remove_reference_t<decltype(at)>>(runs.reach(at, bytes));
  };
  found(call.length, sizeof(uint64_t));
  if (call.status != nullptr) {
    sleep_us(setting("FAKE_CUDA_LATE_US", 0));
    for (DeviceControl*& control : call.controls) found(control, sizeof(DeviceControl));
    found(call.windows, size_t{call.window_count} * call.world * sizeof(DeviceWindow));
    found(call.status, sizeof(CallStatus));
  }
  try {
    for (uint32_t lane = 0; lane < lanes; ++lane) run_host_lane(call, runs, lane, lanes);
  } catch (const KernelRuns::Broken&) {
  }
}

}  // namespace

void ModuleLoadData(Module* module, const void* image) {
  constexpr uint32_t kFatBinary = 0xba55ed50;
  uint32_t first = 0;
  std::memcpy(&first, image, sizeof first);
  // A build without nvcc has none: the names are the same.
  require(first == kFatBinary || std::strcmp(static_cast<const char*>(image), "no nvcc") == 0, kInvalidImage);
  auto made = std::make_unique<FakeModule>();
  for (int dtype = 0; dtype < kDTypes; ++dtype) {
    const int kernel = kernel_of(dtype);
    made->functions["rondo_call_" + std::to_string(kernel)] = {&current_context(), kernel};
  }
  *module = reinterpret_cast<Module>(made.get());
  const std::lock_guard lock(fake().mutex);
  fake().modules.push_back(std::move(made));
}
void ModuleGetFunction(Function* function, Module module, const char* name) {
  auto& all = reinterpret_cast<FakeModule*>(module)->functions;
  const auto found = all.find(name);
  require(found != all.end(), kNotFound);
  *function = reinterpret_cast<Function>(&found->second);
}
void FuncLoad(Function function) { reinterpret_cast<FakeFunction*>(function)->loaded = true; }
void LaunchKernel(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                  unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream handle, void** parameters,
                  void** extra) {
  auto* const kernel = reinterpret_cast<FakeFunction*>(function);
  FakeStream& stream = stream_at(handle);
  require(kernel != nullptr && kernel->context == stream.context, kInvalidHandle);
  require(grid_x > 0 && grid_y == 1 && grid_z == 1 && block_x == kThreadsABlock && block_y == 1 && block_z == 1);
  require(shared_bytes == 0 && extra == nullptr);
  if (!kernel->loaded) {
    for (const auto& queue : fake().queues) queue->synchronize_all();
  }
  const auto call = std::make_shared<const DeviceCall>(*static_cast<const DeviceCall*>(parameters[0]));
  require(kernel_of(call->dtype) == kernel->dtype);
  put(
      stream, [call, grid_x](const FakeContext& in) { run_call(in, *call, grid_x); }, FakeQueue::Entry::kKernel);
  if (setting("CUDA_LAUNCH_BLOCKING", 0) != 0) fake().queue_of(stream).synchronize(&stream);
}

}  // namespace rondo::testing::functions
