#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rondo/communicator.h>
#include <rondo/export.h>
#include <rondo/sparse.h>

#if __cplusplus >= 202002L  // else <rondo/communicator.h> has refused

namespace rondo {

class CompoundCall;  // internal

// How the gradients of all ranks become one (docs/compression.md, "DistOpt").
enum class Exchange : uint8_t {
  kFloat32 = 0,
  kFloat16 = 1,
  kBfloat16 = 2,
  kInt8 = 3,             // with residuals
  kSparseTopK = 4,       // `spars` of each gradient, with residuals
  kSparseThreshold = 5,  // magnitudes of `spars` and above, with residuals
  kPartialUpdate = 6,    // update by the own gradients; then one partition of the parameters is averaged, in turns
  kLocalSgd = 7,         // the same, and all parameters every `every` steps
};

struct DistOptOptions {
  Exchange exchange = Exchange::kFloat32;
  std::optional<double> spars = {};    // nothing: 0.05 of each gradient; magnitudes from 0.001 on
  bool residual = true;                // kInt8, sparse and outer_wire
  float clip = 0;                      // gradients are limited to -clip .. clip; 0: not
  uint64_t bucket_bytes = 2 << 20;     // gradients are exchanged in arrays of about this size
  uint64_t partition_bytes = 2 << 20;  // kPartialUpdate
  uint64_t every = 8;                  // kLocalSgd
  // kLocalSgd: the averaged change d of the parameters since the last average is applied as a step of SGD with
  // momentum: v = outer_momentum v + d; parameters += outer_rate v, or, with nesterov, outer_rate (d + outer_momentum
  // v), as DiLoCo does. 1 and 0: plain averaging.
  float outer_rate = 1;
  float outer_momentum = 0;
  bool nesterov = false;
  // kLocalSgd: how the changes of the parameters since the last average travel, with residuals; kNone: the parameters
  // travel as they are.
  WireFormat outer_wire = WireFormat::kNone;
  // kLocalSgd: the changes travel during so many further steps, less than `every`; what a rank's parameters have
  // changed meanwhile is added to the outer step's result. Steps of other exchanges and load() are refused meanwhile,
  // and other calls on the communicator wait: give DistOpt one of its own, as dup() makes it.
  uint64_t outer_delay = 0;
  // kLocalSgd: the parameters are cut into so many fragments, of whole parameters and about equal size, at most
  // `every`. Each has its outer step every `every` steps, one after the other, so that traffic is spread (streaming
  // DiLoCo).
  uint64_t outer_fragments = 1;
};

// For one step, the same on all ranks; nothing: those of DistOptOptions.
struct StepOptions {
  std::optional<Exchange> exchange = {};
  std::optional<double> spars = {};
};

// A parameter and its gradient: count float32 each. The parameter stays where it is; place() moves the gradient.
struct NamedGradient {
  std::string name;
  float* parameter = nullptr;
  float* gradient = nullptr;
  uint64_t count = 0;
};

// What DistOpt adds to a checkpoint, the same on all ranks.
struct DistOptState {
  struct Tensor {
    std::string name;
    std::vector<float> residuals;  // of all ranks, one after the other
    std::vector<float> outer;      // kLocalSgd: the parameters at the last average, and the momentum; else empty
    std::vector<float> momentum;
  };
  uint64_t steps = 0;
  int world = 0;
  std::vector<Tensor> tensors;
};

// Data-parallel training over a list of gradients, the same list on all ranks. Collective; one thread at a time, and
// not in a batch. The communicator must outlive it.
class RONDO_EXPORT DistOpt {
 public:
  // Broadcasts the parameters of rank 0; made by a newcomer beside regroup() of the others, it takes over what they
  // have. Throws kInvalid: an empty list, a null parameter, two equal names, spars or another number out of range.
  DistOpt(Communicator& group, std::vector<NamedGradient> gradients, const DistOptOptions& options = {});
  ~DistOpt();  // waits for exchanges that ready() began; in an end function they go on, in memory that they keep
  DistOpt(const DistOpt&) = delete;

  // Where this gradient lies from here on; null: there is none, as none is ready, reduced or clipped. Throws kInvalid
  // for an unknown name.
  void place(const std::string& name, float* gradient);

  // Says that the backward pass has written this gradient, and will not again before step(). kFloat32, kFloat16,
  // kBfloat16, kInt8: the exchange of a bucket begins when all of its gradients are there, and goes on while the caller
  // computes; buckets are filled from the list's end, the order of a backward pass. Not needed: step() does the rest.
  // step: what step() will get. kInvalid: an unknown name, a gradient that is ready already, or another exchange than
  // the one that has begun.
  void ready(const std::string& name, const StepOptions& step = {});

  // Averages the gradients over all ranks in place, then calls update() for each; kPartialUpdate and kLocalSgd: the
  // other way round, with parameters. kNotFinite (wire formats and sparse): a gradient is NaN, infinite or too large;
  // the message names gradient, element and rank; nothing is updated, and the communicator goes on. kInvalid: another
  // exchange than the one that ready() began, or a gradient that is null. After any error no gradient is ready and no
  // exchange under way.
  using Update = std::function<void(const NamedGradient&)>;
  void step(const Update& update, const StepOptions& step = {});
  // What step() does before and after the updates, for an optimizer that makes all of them at once.
  void reduce(const StepOptions& step = {});
  void average(const StepOptions& step = {});
  // Returns when no exchange of this rank is under way; step() is still to come.
  void wait();
  // Goes on with `next`, which shrink() or grow() has made (docs/recovery.md), or dup() of that. Collective, beside the
  // constructors of newcomers, which come last. Gradients that were ready, and changes that travelled, stay unsent. All
  // ranks take the number of steps of the one that has most. A rank that has missed a step, or a fragment's outer step,
  // takes over the parameters of a rank that has made it; else parameters and residuals are kept. What the update keeps
  // is the caller's. Where it throws, call it again with the next epoch.
  void regroup(Communicator& next);

  uint64_t steps() const { return steps_; }
  uint64_t bytes_sent() const { return bytes_sent_; }  // by this rank, estimated from what was exchanged
  // What this rank has not sent yet of a gradient. Throws kInvalid for an unknown name.
  std::span<float> residual(const std::string& name);

  // For a checkpoint, between two steps. Collective. Changes that travel arrive first, in the parameters, too.
  DistOptState save();
  // With as many ranks as saved it, each takes its own residuals; else all take the mean, so that the averaged gradient
  // gets what is left. kLocalSgd: load the parameters first; with a state of another exchange they count as the last
  // average. Throws kInvalid for a state of other tensors. Not collective.
  void load(const DistOptState& state);

 private:
  struct Bucket {
    std::vector<size_t> members;  // of gradients_
    std::vector<float> values, residual;
    std::vector<float> sent;  // kLocalSgd: the parameters whose changes travel
    size_t missing = 0;       // gradients that are not ready
    Work work;
  };
  // A part of the parameters: all of them but for outer_fragments.
  struct Fragment {
    std::span<Bucket> buckets;
    uint64_t version = 0;         // 0: not yet that of other ranks; then grows with each (outer) step
    std::optional<uint64_t> due;  // the step at whose end the changes that travel are waited for
  };
  struct Place {
    size_t bucket = 0;
    uint64_t offset = 0;
    bool ready = false;
  };
  void make_buckets();
  void agree(const CompoundCall& call);
  void take_over(const CompoundCall& call, Fragment& fragment, int root, bool lags);
  void fill(size_t gradient);
  void begin(const CompoundCall& call, Bucket& bucket, Exchange exchange);
  void end_all(std::span<Bucket> buckets, const std::function<void(Bucket&)>& end);
  void begin_again() noexcept;
  static void leave(Bucket bucket) noexcept;
  void refuse_another(Exchange exchange) const;
  void count_sent(uint64_t elements, WireFormat format);
  void reduce_sparse(Bucket& bucket, Exchange exchange, double spars);
  void exchange_gradients(const CompoundCall& call, Exchange exchange, double spars);
  Error in_gradient(Error error, const Bucket& bucket) const;
  void copy_back();
  void average_parameters(const CompoundCall& call, Exchange exchange);
  void average_changes(const CompoundCall& call);
  void begin_changes(const CompoundCall& call, Fragment& fragment);
  void end_changes(std::optional<uint64_t> step);
  void end_changes(Fragment& fragment);
  std::optional<uint64_t> due() const;
  void refuse_meanwhile(const char* what) const;
  template <typename Action>
  void for_each_value(const Fragment& fragment, Action action);
  void outer_step(size_t gradient);
  size_t index_of(const std::string& name) const;

  Communicator* group_;  // CompoundCall alone makes exchanges of it
  std::vector<NamedGradient> gradients_;
  DistOptOptions options_;
  std::vector<Bucket> buckets_;
  std::vector<Fragment> fragments_;
  std::vector<Place> places_;                    // by gradient
  std::map<std::string, size_t> index_by_name_;  // of gradients_
  std::vector<std::vector<size_t>> partitions_;
  std::vector<std::vector<float>> outer_, momentum_;  // kLocalSgd, by gradient
  size_t begun_ = 0;                                  // buckets whose gradients' exchange has begun
  Exchange begun_as_ = Exchange::kFloat32;
  uint64_t steps_ = 0, bytes_sent_ = 0;
};

}  // namespace rondo

#endif  // C++20
