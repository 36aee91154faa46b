#pragma once

#include <optional>
#include <vector>

#include "bench/loop/group.h"
#include "rondo/communicator.h"

namespace rondo::bench {

// How Rondo is called.
struct RondoCalls {
  Algorithm algorithm = Algorithm::kAuto;
  BufferKind buffers = BufferKind::kPlain;
  bool fused = false;    // run_parts() is one all_reduce_many()
  bool blocking = true;  // false: operations are started, then waited for
};

// Rondo under measurement. The communicator must outlive the group.
class RondoGroup : public Group {
 public:
  RondoGroup(Communicator& communicator, const RondoCalls& calls);

  int rank() const override { return communicator_.rank(); }
  int size() const override { return communicator_.size(); }
  void run(const Call& call) override;
  void run_parts(const Call& call, std::span<const uint64_t> counts) override;
  // Registered: Communicator::allocate(). Throws kUnsupported where the library has none.
  std::byte* allocate(uint64_t bytes) override;
  void deallocate(std::byte* memory) override;
  std::string algorithm(const Call& call) const override;
  void barrier() override;
  double max(double value) override;
  uint64_t sum(uint64_t value) override;

 protected:
  // Calls that are timed take a stream from now on.
  void set_stream(std::optional<void*> stream) { options_.stream = stream; }
  // run_parts() on buffers that are already where calls find them.
  void run_parts_at(const Call& call, std::span<const uint64_t> counts);

 private:
  void run_messages(const Call& call);
  void run_send_recv(const Call& call);
  void run_ping_pong(const Call& call);
  void run_burst(const Call& call);

  Communicator& communicator_;
  RondoCalls calls_;
  CallOptions options_;  // of what is timed
  // Both keep their capacity between calls: no allocation is timed.
  std::vector<TensorRef> tensors_;
  std::vector<Work> works_;
};

}  // namespace rondo::bench
