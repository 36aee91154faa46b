#include "tests/device/device_cases.h"
#include "rondo/communicator.h"

#include <dlfcn.h>

#include <memory>

#include "ring/base/types.h"

namespace rondo::testing {
namespace {

constexpr size_t kRegisteredBytes = 64u << 20;

void run_one(Communicator& group, const CollectiveCase& what, void* registered) {
  Mirror mirror(registered, kRegisteredBytes);
  CollectiveRank rank(what, group.rank(), &mirror);
  mirror.to_device();
  Call call = rank.call();
  call.input = mirror.image(call.input);
  call.output = mirror.image(call.output);
  call.options.stream = mirror.stream();
  group.run(call);
  mirror.to_host();
  mirror.synchronize();
  const std::string wrong = rank.check();
  expect(wrong.empty(), [&] { return what.describe() + " on device memory: " + wrong; });
}

}  // namespace

void run_on_device(Communicator& group, const std::vector<CollectiveCase>& cases, BufferKind buffers) {
  void* registered = nullptr;
  if (buffers != BufferKind::kPlain) registered = group.allocate(kRegisteredBytes, Memory::kDevice);
  const bool own = buffers == BufferKind::kRegistered || group.rank() % 2 == 1;
  for (const CollectiveCase& what : cases) {
    if (!collective_scans(what.collective)) run_one(group, what, own ? registered : nullptr);  // those are refused
  }
  if (registered != nullptr) group.deallocate(registered);
}

RankGroup device_group(int world, const char* transport, const Settings& settings) {
  RankGroup group;
  group.world = world;
  group.config.transport = world == 1 ? "auto" : transport;
  group.config.device_library = device_library();
  group.before = [settings](int) {
    for (const auto& [name, value] : settings) setenv(name, value.c_str(), 1);
  };
  return group;
}

void* find_function(const char* name) {
  void* const library = dlopen(device_library(), RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : dlsym(library, name);
}

}  // namespace rondo::testing
