#pragma once

#include "bench/group.h"
#include "ring/communicator.h"

namespace rondo::bench {

// Rondo under measurement. The communicator must outlive the group.
class RondoGroup : public Group {
 public:
  RondoGroup(Communicator& communicator, Algorithm algorithm, BufferKind buffers);

  int rank() const override { return communicator_.rank(); }
  int size() const override { return communicator_.size(); }
  void run(const Call& call) override;
  // Registered: Communicator::allocate(). Throws kUnsupported where the library has none.
  std::byte* allocate(uint64_t bytes) override;
  void deallocate(std::byte* memory) override;
  std::string algorithm(const Call& call) const override;
  void barrier() override;
  double max(double value) override;
  uint64_t sum(uint64_t value) override;

 private:
  Communicator& communicator_;
  BufferKind buffers_;
  CallOptions options_;  // of what is timed
};

}  // namespace rondo::bench
