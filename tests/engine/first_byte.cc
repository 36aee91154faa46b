// first_byte shm|tcp: prints the address of each function that a blocking all_reduce of 8 bytes enters on rank 0 of 2
// before its first byte moves: as `nm` has it, one a line, in order. Built by --config=first_byte, which makes every
// function call __cyg_profile_func_enter; tests/engine/first_byte.py reads it.
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "kernels/cross_copy.h"
#include "rondo/communicator.h"
#include "tests/support/rank_group.h"

extern "C" const char __executable_start;  // of the linker

namespace {

constexpr size_t kMostFunctions = 1024;

thread_local bool recording = false;
std::array<uint64_t, kMostFunctions> functions;
size_t entered = 0;

uint64_t address_in_file(const void* function) {
  return reinterpret_cast<uint64_t>(function) - reinterpret_cast<uint64_t>(&__executable_start);
}

// Into the memory that the other rank reads.
bool moves_bytes(const void* function) { return function == reinterpret_cast<void*>(&rondo::cross_copy); }

}  // namespace

extern "C" {

void __cyg_profile_func_enter(void* function, void*) {
  if (!recording) return;
  if (moves_bytes(function)) recording = false;
  const uint64_t address = address_in_file(function);
  const auto end = functions.begin() + static_cast<std::ptrdiff_t>(entered);
  if (!recording || std::find(functions.begin(), end, address) != end) return;
  if (entered < kMostFunctions) functions[entered++] = address;
}

void __cyg_profile_func_exit(void*, void*) {}

// In the place of the C library's: over TCP the first byte moves here.
ssize_t send(int socket, const void* data, size_t bytes, int flags) {
  recording = false;
  return syscall(SYS_sendto, socket, data, bytes, flags, nullptr, 0);
}

ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  recording = false;
  return syscall(SYS_sendmsg, socket, message, flags);
}

}  // extern "C"

int main(int count, char** arguments) {
  using namespace rondo;
  testing::RankGroup shape;
  shape.config.transport = count > 1 ? arguments[1] : "";
  const std::string failure = testing::run_processes(shape, [](Communicator& group) {
    float values[2] = {1, 1};
    for (int call = 0; call < 8; ++call) group.all_reduce(values, values, 2, DType::kFloat32);
    group.barrier();
    group.all_reduce(values, values, 2, DType::kFloat32);
    recording = group.rank() == 0;
    group.all_reduce(values, values, 2, DType::kFloat32);
    testing::expect(!recording, "no byte moved");
    for (size_t i = 0; i < entered; ++i) std::printf("%lx\n", functions[i]);
    std::fflush(stdout);
  });
  if (!failure.empty()) std::fprintf(stderr, "%s\n", failure.c_str());
  return failure.empty() ? 0 : 1;
}
