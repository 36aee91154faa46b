// first_byte CALL TRANSPORT: prints the address of each function that a call on 8 bytes enters on rank 0 of 2 before
// its first byte moves or it returns: as `nm` has it, one a line, in order. Built by --config=first_byte, which makes
// every function call __cyg_profile_func_enter; tests/engine/first_byte.py reads it.
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "kernels/cross_copy.h"
#include "rondo/communicator.h"
#include "tests/support/rank_group.h"

#define NOT_RECORDED __attribute__((no_instrument_function))

extern "C" const char __executable_start;  // of the linker

namespace {

constexpr size_t kMostFunctions = 1024;

thread_local bool recording = false;
uint64_t functions[kMostFunctions];
size_t entered = 0;

NOT_RECORDED uint64_t address_in_file(const void* function) {
  return reinterpret_cast<uint64_t>(function) - reinterpret_cast<uint64_t>(&__executable_start);
}

// Into the memory that the other rank reads.
NOT_RECORDED bool moves_bytes(const void* function) { return function == reinterpret_cast<void*>(&rondo::cross_copy); }

}  // namespace

extern "C" {

NOT_RECORDED void __cyg_profile_func_enter(void* function, void*) {
  if (!recording) return;
  if (moves_bytes(function)) recording = false;
  const uint64_t address = address_in_file(function);
  bool known = !recording || entered == kMostFunctions;
  for (size_t i = 0; i < entered; ++i) known |= functions[i] == address;
  if (!known) functions[entered++] = address;
}

NOT_RECORDED void __cyg_profile_func_exit(void*, void*) {}

// In the place of the C library's: over TCP the first byte moves here.
NOT_RECORDED ssize_t send(int socket, const void* data, size_t bytes, int flags) {
  recording = false;
  return syscall(SYS_sendto, socket, data, bytes, flags, nullptr, 0);
}

NOT_RECORDED ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  recording = false;
  return syscall(SYS_sendmsg, socket, message, flags);
}

}  // extern "C"

namespace {

using rondo::Communicator;
using rondo::DType;
using rondo::Work;

constexpr int kBefore = 8;  // calls that find what later ones keep

// Calls of one name one after the other, the last of which is recorded on rank 0.
class Calls {
 public:
  explicit Calls(Communicator& group) : group_(group), peer_(1 - group.rank()) {}

  void run(const std::string& name) {
    for (int call = 0; call <= kBefore; ++call) {
      recorded_ = call == kBefore && group_.rank() == 0;
      if (name == "all_reduce") record([&] { group_.all_reduce(values_, values_, 2, DType::kFloat32); });
      if (name == "all_reduce_async") reduce_later();
      if (name == "send") group_.rank() == 0 ? record([&] { send(); }) : receive();
      if (name == "send_async") send_later();
      if (name == "recv_async") receive_later();
    }
  }

 private:
  template <typename Call>
  void record(Call call) {
    recording = recorded_;
    call();
    recording = false;
  }
  void send() { group_.send(values_, 2, DType::kFloat32, peer_); }
  void receive() { group_.recv(values_, 2, DType::kFloat32, peer_); }

  void reduce_later() {
    Work work;
    record([&] { work = group_.all_reduce_async(values_, values_, 2, DType::kFloat32); });
    work.wait();
  }
  void send_later() {
    Work work;
    if (group_.rank() == 0) record([&] { work = group_.send_async(values_, 2, DType::kFloat32, peer_); });
    group_.rank() == 0 ? work.wait() : receive();
  }
  // The message comes when the call has returned.
  void receive_later() {
    Work work;
    if (group_.rank() == 0) record([&] { work = group_.recv_async(values_, 2, DType::kFloat32, peer_); });
    group_.barrier();
    group_.rank() == 0 ? work.wait() : send();
  }

  Communicator& group_;
  const int peer_;
  bool recorded_ = false;
  float values_[2] = {1, 1};
};

}  // namespace

int main(int count, char** arguments) {
  using namespace rondo;
  testing::RankGroup shape;
  const std::string call = count > 1 ? arguments[1] : "";
  shape.config.transport = count > 2 ? arguments[2] : "";
  const std::string failure = testing::run_processes(shape, [&call](Communicator& group) {
    Calls(group).run(call);
    for (size_t i = 0; i < entered; ++i) std::printf("%lx\n", functions[i]);
    std::fflush(stdout);
    testing::expect(group.rank() != 0 || entered > 0, "no such call: " + call);
  });
  if (!failure.empty()) std::fprintf(stderr, "%s\n", failure.c_str());
  return failure.empty() ? 0 : 1;
}
