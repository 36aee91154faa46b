#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <rondo/communicator.h>
#include <rondo/export.h>
#include <rondo/sparse.h>

namespace rondo {

// How the gradients of all ranks become one (docs/compression.md, "DistOpt").
enum class Exchange : uint8_t {
  kFloat32 = 0,
  kFloat16 = 1,
  kBfloat16 = 2,
  kInt8 = 3,             // with residuals
  kSparseTopK = 4,       // `spars` of each bucket, with residuals
  kSparseThreshold = 5,  // magnitudes of `spars` and above, with residuals
  kPartialUpdate = 6,    // update by the own gradients; then one partition of the parameters is averaged, in turns
  kLocalSgd = 7,         // the same, and all parameters every `every` steps
};

struct DistOptOptions {
  Exchange exchange = Exchange::kFloat32;
  double spars = 0.05;
  bool residual = true;
  float clip = 0;                      // gradients are limited to -clip .. clip; 0: not
  uint64_t bucket_bytes = 2 << 20;     // gradients are exchanged in arrays of about this size
  uint64_t partition_bytes = 2 << 20;  // kPartialUpdate
  uint64_t every = 8;                  // kLocalSgd
};

// A parameter and its gradient: count float32 each, which stay where they are.
struct NamedGradient {
  std::string name;
  float* parameter = nullptr;
  float* gradient = nullptr;
  uint64_t count = 0;
};

// Data-parallel training over a list of gradients, the same list on all ranks. Collective; one thread at a time. The
// communicator must outlive it.
class RONDO_EXPORT DistOpt {
 public:
  // Broadcasts the parameters of rank 0. Throws kInvalid: an empty list, a null pointer, two equal names, spars or
  // another number out of range.
  DistOpt(Communicator& group, std::vector<NamedGradient> gradients, const DistOptOptions& options = {});

  // Averages the gradients over all ranks in place, then calls update() for each; kPartialUpdate and kLocalSgd: the
  // other way round, with parameters. kNotFinite: a gradient is NaN, infinite or too large; nothing is updated, and
  // the communicator goes on.
  using Update = std::function<void(const NamedGradient&)>;
  void step(const Update& update);

  uint64_t steps() const { return steps_; }
  // What this rank has not sent yet of a gradient: for a checkpoint. Throws kInvalid for an unknown name.
  std::span<float> residual(const std::string& name);

 private:
  struct Bucket {
    size_t first = 0, count = 0;  // of gradients_
    std::vector<float> values, residual;
  };
  void exchange(Bucket& bucket);
  void average(size_t first, size_t count);
  void clip_gradients();

  Communicator& group_;
  std::vector<NamedGradient> gradients_;
  DistOptOptions options_;
  std::vector<Bucket> buckets_;
  std::vector<Bucket> partitions_;  // without memory
  uint64_t steps_ = 0;
};

}  // namespace rondo
