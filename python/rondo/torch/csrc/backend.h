#pragma once

#include <rondo/rondo.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "csrc/in_stream.h"
#include "csrc/locked.h"
#include "csrc/memory.h"
#include "csrc/operation.h"
#include "csrc/tensors.h"

namespace rondo_torch {

using c10d::Work;
using WorkPointer = c10::intrusive_ptr<Work>;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<std::vector<at::Tensor>>;

// What torch says of a group when it makes one.
struct GroupDescription {
  int rank;
  int size;
  std::chrono::milliseconds timeout;
  std::string name;
  std::vector<int64_t> global_ranks;  // empty: those of a store of its own
  bool is_default;                    // other groups are made from it
  bool waits = false;                 // for reconfigure(): no communicator yet
};

// torch.distributed's backend "rondo": every collective and message of torch on tensors on the CPU or a CUDA device, as
// calls of rondo.h. Calls with asyncOp = false run on the caller's thread and return no Work. Bad arguments raise
// ValueError before anything happens; failures of the group DistBackendError. Any thread may call.
class RondoBackend : public c10d::Backend {
 public:
  // A group of the default group's ranks is a sub-communicator of it; others meet in the store.
  static c10::intrusive_ptr<RondoBackend> create(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const GroupDescription& group);
  // Ends all groups that are left, at the end of the process. exception: what ends it; the other ranks are told at
  // once. "": it ends in good order.
  static void leave_all(const std::string& exception);
  // The group of this process that torch calls by this name; "": the default group. ValueError where there is none.
  static c10::intrusive_ptr<RondoBackend> named(std::string_view name);
  // Takes the communicator; null: reconfigure() will make one.
  // Public for make_intrusive.
  RondoBackend(const c10::intrusive_ptr<c10d::Store>& store, const GroupDescription& group, rondo_comm_t comm);
  ~RondoBackend() override;

  const std::string& name() const { return options_->group_name; }
  const std::shared_ptr<GroupMemory>& memory() const { return memory_; }
  // Returns the newest arena if it has room for so many bytes, else makes one.
  std::shared_ptr<Arena> arena(size_t bytes);
  // Whether this thread is between startCoalescing() and endCoalescing().
  bool groups_here() const { return group_thread_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }

  const std::string getBackendName() const override { return "rondo"; }
  // A copy: torch writes another group's name into it.
  c10::intrusive_ptr<Options> getBackendOptions() override { return c10::make_intrusive<Options>(*options_); }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  bool supportsCoalescing() const override { return true; }
  bool supportsSplitting() const override { return true; }
  // A sub-communicator of these ranks, each this group's; null where this rank is none of them. Its members call.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& options) override;

  // all_reduces by themselves, without a wire format, leave their tensors as they were where they fail.
  void set_recoverable(bool recoverable) { recoverable_ = recoverable; }
  // After a failure, called by all that live: the ranks that do not go on, as rondo_shrink() has agreed.
  std::vector<int64_t> lost();
  // torch.distributed.shrink_group, of torch 2.13 and newer: no override to those before. The group without these
  // ranks, for those that are left, who all call it. abort: SHRINK_ABORT, after a failure: exactly those of lost().
  // Else the group has not failed.
  virtual bool supportsShrinking() const { return true; }
  virtual c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t>& excluded, int abort,
                                                   const c10::intrusive_ptr<Options>& options);
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  // torch.distributed._reconfigure, of torch 2.15 and newer: the ranks of these handles meet in the store that the
  // group was made with, which they share, as a new communicator; others hear that they have left the old one. All of
  // them call it, after a failure or not, when their calls have ended. Registered memory of before is plain memory to
  // the new one. Where it fails the group has no communicator; it may be called again.
  bool supportsReconfigure() const override { return true; }
  c10d::ReconfigureHandle get_reconfigure_handle() const override { return handle_; }
  WorkPointer reconfigure(const c10d::ReconfigureOptions& options) override;
#endif
  virtual void setGroupUid(const std::string& name) {
    c10d::Backend::setGroupUid(name);
    if (options_->group_name.empty()) options_->group_name = name;
  }

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return allreduce(tensors, options, RONDO_WIRE_NONE);
  }
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options, rondo_wire_format_t wire);
  // A blocking allreduce(), without the objects of a Work. False, and nothing is done: the tensor is no dense block of
  // CPU memory, or a group of calls or a profiler is there; allreduce() serves those.
  bool allreduce_as_it_lies(at::Tensor& tensor, const c10d::ReduceOp& op, std::chrono::milliseconds timeout,
                            rondo_wire_format_t wire);
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPointer allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    return _allgather_base(output, input, options, RONDO_WIRE_NONE);
  }
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options,
                              rondo_wire_format_t wire);
  WorkPointer allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) override;
  WorkPointer gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPointer scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkPointer reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override {
    return _reduce_scatter_base(output, input, options, RONDO_WIRE_NONE);
  }
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options,
                                   rondo_wire_format_t wire);
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_rows,
                            std::vector<int64_t>& input_rows, const c10d::AllToAllOptions& options) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;

  WorkPointer send(Tensors& tensors, int to, int tag) override;
  WorkPointer recv(Tensors& tensors, int from, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;

  void startCoalescing() override;
  WorkPointer endCoalescing() override;

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_number_; }
  c10d::ErrorType getError() override;
  // A group made with enable_reconfigure ends its communicator, too, and waits for reconfigure().
  void abort() override;
  void shutdown() override;

 private:
  // A call that uses the communicator, which shutdown() frees when there are none but in its own thread. On the stack.
  class Use {
   public:
    explicit Use(RondoBackend& backend);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    // How many of the backend's calls this thread is in: in the wait of each, the handler of a Python signal runs.
    static int here(const RondoBackend& backend);

   private:
    static constinit thread_local const Use* innermost_;

    RondoBackend& backend_;
    const Use* const outer_;
  };

  // Calls between startCoalescing() and endCoalescing(), which belong to the thread of the former.
  struct Group {
    std::thread::id thread;
    std::shared_ptr<Operation> operation = std::make_shared<Operation>();
    std::vector<rondo_work_t> works;    // of messages; collectives share the work of the end
    std::optional<c10::Stream> stream;  // of the last call; std::nullopt: its tensors are on the CPU
  };

  enum class Kind { kCollective, kMessage };

  // Runs one call. `start(work)` calls the library: the blocking form if work is NULL. Returns null if `async` is
  // false. `inputs`: for torch's profiler.
  template <typename Start>
  WorkPointer run(Call call, const Tensors& inputs, bool async, Start start, Kind kind = Kind::kCollective);
  auto collective(const rondo_call_t& call) const;
  template <typename Start>
  WorkPointer run_grouped(Call call, Start start, Kind kind);
  WorkPointer work_of(c10d::OpType type, const char* title, const Tensors& inputs, std::shared_ptr<Operation> operation,
                      size_t index = 0);
  // Several calls as one: those that `body` makes.
  template <typename Body>
  WorkPointer run_as_group(c10d::OpType type, const char* title, const Tensors& inputs, bool async, Body body);
  // The end of this thread's group, as one operation of this type and title.
  WorkPointer end_group(c10d::OpType type, const char* title, const Tensors& inputs);
  // No call of another thread uses the communicator any more. False: there is none.
  bool stop_calls();
  // Without waiting for the other ranks.
  void end_communicator();
  // Forgets the calls of this thread's group.
  void abandon_group();

  WorkPointer receive(at::Tensor& tensor, int from, int tag, c10d::OpType type, const char* title);
  void gather_entries(const at::Tensor& source, const at::Tensor& target, const std::vector<int64_t>& counts,
                      int64_t width, std::chrono::milliseconds timeout);
  // For the time of a call whose first tensor this is; async: it gives a Work.
  InStream place_of(const at::Tensor& tensor, bool async) {
    return place_on(tensor.defined() ? tensor.device() : at::kCPU, async);
  }
  InStream place_on(const at::Device& device, bool async);
  rondo_options_t call_options(std::chrono::milliseconds timeout, double scalar = 1,
                               rondo_wire_format_t wire = RONDO_WIRE_NONE) const;
  rondo_options_t all_reduce_options(std::chrono::milliseconds timeout, double scalar, rondo_wire_format_t wire) const;
  void check_root(int64_t root, const char* call) const;
  void check_list(const Tensors& list, const at::Tensor& one, const char* call) const;

  c10::intrusive_ptr<Options> options_;
  rondo_comm_t comm_;
  std::shared_ptr<GroupMemory> memory_;  // shared with the tensors in it; frees comm_
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string handle_;       // of this process, for reconfigure(); no other's
  const bool reconfigurable_;      // made with enable_reconfigure
  std::set<int64_t> uuids_;        // of reconfigure(), so far
  rondo_comm_t shrunk_ = nullptr;  // from lost() to shrink()
  std::vector<int64_t> lost_;
  Locked<std::optional<c10::Stream>> beside_;  // for calls that give a Work; std::nullopt: there was none on a GPU
  Locked<std::shared_ptr<Arena>> arena_;       // shared with scopes and tensors; null: none was asked for
  const int forks_;  // this process's when it was made: a forked child must not touch the communicator
  std::atomic<uint64_t> sequence_number_{0};
  std::atomic<bool> recoverable_{false};
  std::atomic<int> uses_{0};
  std::atomic<bool> closed_;
  std::atomic<std::thread::id> group_thread_{};
  std::unique_ptr<Group> group_;  // of the thread group_thread_
};

}  // namespace rondo_torch
