#include <stdexcept>
#include <utility>

#include "rondo/rondo.h"
#include "tests/life/door.h"

namespace rondo::life {
namespace {

Error outcome(rondo_result_t result) {
  if (result == RONDO_OK) return {};
  Error error{static_cast<ErrorCode>(result), rondo_last_error(), std::vector<int>(rondo_last_error_ranks(nullptr, 0))};
  rondo_last_error_ranks(error.ranks.data(), error.ranks.size());
  return error;
}

class CHandle final : public Handle {
 public:
  explicit CHandle(rondo_work_t work) : work_(work) {}
  ~CHandle() override { rondo_work_free(work_); }
  bool done() override {
    int done = 0;
    rondo_test(work_, &done);
    return done != 0;
  }
  Error wait() override { return outcome(rondo_wait(work_, -1)); }
  void on_end(std::function<void()> function) override {
    const auto call = [](void* context, rondo_result_t) {
      const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(context));
      (*owned)();
    };
    rondo_work_on_end(work_, call, new std::function<void()>(std::move(function)));
  }
  rondo::Message message() override {
    rondo_message_t message{-1, -1, 0, 0};
    rondo_work_message(work_, &message);
    return {message.peer, message.tag, message.bytes, message.matched};
  }

 private:
  rondo_work_t work_;
};

class CGroup final : public Group {
 public:
  explicit CGroup(rondo_comm_t comm) : comm_(comm) {}
  ~CGroup() override { destroy(); }

  Error run(const Call& call, rondo::Message* message) override {
    rondo_message_t got{-1, -1, 0, 0};
    const Error error = outcome(call_either(call, &got, nullptr));
    if (message != nullptr) *message = {got.peer, got.tag, got.bytes, got.matched};
    return error;
  }
  Error start(const Call& call, std::unique_ptr<Handle>* handle) override {
    rondo_work_t work = nullptr;
    const Error error = outcome(call_either(call, nullptr, &work));
    if (work != nullptr) *handle = std::make_unique<CHandle>(work);
    return error;
  }
  Error sparse(const float* in, float* out, uint64_t count, const SparseOptions& options) override {
    rondo_sparse_options_t o = RONDO_SPARSE_OPTIONS_INIT;
    o.spars = options.spars;
    o.residual = options.residual;
    o.select = static_cast<rondo_select_t>(options.select);
    o.tensors = options.tensors.data();
    o.tensor_count = options.tensors.size();
    o.timeout_ms = options.timeout.count();
    return outcome(rondo_sparse_all_reduce(comm_, in, out, count, &o, nullptr));
  }
  Error batch_begin() override { return outcome(rondo_batch_begin(comm_)); }
  Error batch_end(std::unique_ptr<Handle>* handle) override {
    if (handle == nullptr) return outcome(rondo_batch_end(comm_));
    rondo_work_t work = nullptr;
    const Error error = outcome(rondo_batch_end_async(comm_, &work));
    if (work != nullptr) *handle = std::make_unique<CHandle>(work);
    return error;
  }
  Error split(int color, int key, std::unique_ptr<Group>* group) override {
    rondo_comm_t sub = nullptr;
    const rondo_result_t result = rondo_split(comm_, color, key, &sub);
    return keep(result, sub, group);
  }
  Error new_group(const std::vector<int>& ranks, std::unique_ptr<Group>* group) override {
    rondo_comm_t sub = nullptr;
    const rondo_result_t result = rondo_new_group(comm_, ranks.data(), ranks.size(), &sub);
    return keep(result, sub, group);
  }
  Error attach_device() override { return outcome(rondo_attach_device(comm_)); }
  Error shrink() override {
    rondo_comm_t next = nullptr;
    const rondo_result_t result = rondo_shrink(comm_, 0, &next);
    return become(result, next);
  }
  Error grow(int newcomers) override {
    rondo_comm_t next = nullptr;
    const rondo_result_t result = rondo_grow(comm_, newcomers, 0, &next);
    return become(result, next);
  }
  Error commit(int64_t step, uint64_t digest) override { return outcome(rondo_commit(comm_, step, digest)); }
  int64_t committed() override { return got<int64_t>(rondo_committed); }
  uint64_t epoch() override { return got<uint64_t>(rondo_epoch); }
  int rank() override { return got<int>(rondo_rank); }
  int size() override { return got<int>(rondo_size); }
  void* allocate(size_t bytes) override {
    void* data = nullptr;
    const Error error = outcome(rondo_allocate(comm_, bytes, &data));
    if (!error.ok()) throw std::runtime_error("rondo_allocate: " + error.message);
    return data;
  }
  void deallocate(void* data) override { rondo_deallocate(comm_, data); }
  Error abort(const std::string& reason) override { return outcome(rondo_abort(comm_, reason.c_str())); }
  Error error() override { return outcome(rondo_error(comm_)); }
  // C passes no length.
  bool can_say(const std::string& mistake) override { return mistake != "counts"; }
  Error destroy() override {
    return comm_ == nullptr ? Error{} : outcome(rondo_destroy(std::exchange(comm_, nullptr)));
  }

 private:
  static Error keep(rondo_result_t result, rondo_comm_t sub, std::unique_ptr<Group>* group) {
    const Error error = outcome(result);
    if (sub != nullptr) *group = std::make_unique<CGroup>(sub);
    return error;
  }
  Error become(rondo_result_t result, rondo_comm_t next) {
    const Error error = outcome(result);
    if (next != nullptr) rondo_destroy(std::exchange(comm_, next));
    return error;
  }
  template <typename T>
  T got(rondo_result_t (*what)(rondo_comm_t, T*)) {
    T value = 0;
    what(comm_, &value);
    return value;
  }
  rondo_result_t call_either(const Call& call, rondo_message_t* message, rondo_work_t* work);

  rondo_comm_t comm_;
};

const uint64_t* or_null(const std::vector<uint64_t>& values) { return values.empty() ? nullptr : values.data(); }

// The blocking form where work is null.
#define RONDO_LIFE_EITHER(name, ...) \
  return work == nullptr ? rondo_##name(comm_, __VA_ARGS__) : rondo_##name##_async(comm_, __VA_ARGS__, work)

rondo_result_t CGroup::call_either(const Call& c, rondo_message_t* message, rondo_work_t* work) {
  rondo_options_t options = RONDO_OPTIONS_INIT;
  options.timeout_ms = c.options.timeout.count();
  options.scalar = c.options.scalar;
  options.algorithm = algorithm_name(c.options.algorithm);
  options.wire = static_cast<rondo_wire_format_t>(c.options.wire.format);
  options.wire_flags = c.options.wire.stochastic ? RONDO_WIRE_STOCHASTIC : 0;
  options.wire_seed = c.options.wire.seed;
  options.residual = c.options.wire.residual;
  options.purpose = static_cast<uint64_t>(c.options.purpose);
  options.user = {c.options.user.function, c.options.user.context, c.options.user.element_bytes,
                  c.options.user.commutative ? 1 : 0};
  options.flags = (c.options.synchronous ? RONDO_SYNCHRONOUS : 0) | (c.options.recoverable ? RONDO_RECOVERABLE : 0);
  const auto* o = &options;
  const auto dtype = static_cast<rondo_dtype_t>(c.dtype);
  const auto op = static_cast<rondo_op_t>(c.op);
  const uint64_t *counts = or_null(c.counts), *places = or_null(c.displacements);
  std::vector<rondo_tensor_t> tensors;
  for (const TensorRef& t : c.tensors) {
    tensors.push_back({t.input, t.output, t.count, static_cast<rondo_dtype_t>(t.dtype)});
  }
  switch (c.verb) {
    case Verb::kAllReduce:
      RONDO_LIFE_EITHER(all_reduce, c.in, c.out, c.count, dtype, op, o);
    case Verb::kReduce:
      RONDO_LIFE_EITHER(reduce, c.in, c.out, c.count, dtype, op, c.root, o);
    case Verb::kBroadcast:
      RONDO_LIFE_EITHER(broadcast, c.out, c.count, dtype, c.root, o);
    case Verb::kAllGather:
      RONDO_LIFE_EITHER(all_gather, c.in, c.out, c.count, dtype, o);
    case Verb::kReduceScatter:
      RONDO_LIFE_EITHER(reduce_scatter, c.in, c.out, c.count, dtype, op, o);
    case Verb::kGather:
      RONDO_LIFE_EITHER(gather, c.in, c.out, c.count, dtype, c.root, o);
    case Verb::kScatter:
      RONDO_LIFE_EITHER(scatter, c.in, c.out, c.count, dtype, c.root, o);
    case Verb::kAllToAll:
      RONDO_LIFE_EITHER(all_to_all, c.in, c.out, c.count, dtype, o);
    case Verb::kBarrier:
      RONDO_LIFE_EITHER(barrier, o);
    case Verb::kAllGatherV:
      RONDO_LIFE_EITHER(all_gather_v, c.in, c.out, counts, places, dtype, o);
    case Verb::kReduceScatterV:
      RONDO_LIFE_EITHER(reduce_scatter_v, c.in, c.out, counts, dtype, op, o);
    case Verb::kGatherV:
      RONDO_LIFE_EITHER(gather_v, c.in, c.count, c.out, counts, places, dtype, c.root, o);
    case Verb::kScatterV:
      RONDO_LIFE_EITHER(scatter_v, c.in, counts, places, c.out, c.count, dtype, c.root, o);
    case Verb::kAllToAllV:
      RONDO_LIFE_EITHER(all_to_all_v, c.in, counts, places, c.out, or_null(c.out_counts), or_null(c.out_displacements),
                        dtype, o);
    case Verb::kAllReduceMany:
      RONDO_LIFE_EITHER(all_reduce_many, tensors.data(), tensors.size(), op, o);
    case Verb::kScan:
      RONDO_LIFE_EITHER(scan, c.in, c.out, c.count, dtype, op, o);
    case Verb::kExscan:
      RONDO_LIFE_EITHER(exscan, c.in, c.out, c.count, dtype, op, o);
    case Verb::kSend:
      RONDO_LIFE_EITHER(send, c.in, c.count, dtype, c.root, c.tag, o);
    case Verb::kMatchedProbe:
      return rondo_mprobe(comm_, c.root, c.tag, o, message);
    case Verb::kRecv:
      if (c.matched != 0 && work != nullptr) return rondo_mrecv_async(comm_, c.out, c.count, dtype, c.matched, o, work);
      if (c.matched != 0) return rondo_mrecv(comm_, c.out, c.count, dtype, c.matched, o, message);
      if (work != nullptr) return rondo_recv_async(comm_, c.out, c.count, dtype, c.root, c.tag, o, work);
      return rondo_recv(comm_, c.out, c.count, dtype, c.root, c.tag, o, message);
    case Verb::kSendRecv:
      return rondo_sendrecv(comm_, c.in, c.count, c.to, c.out, c.count, c.root, dtype, c.tag, o, message);
  }
  return RONDO_INTERNAL;
}
#undef RONDO_LIFE_EITHER

}  // namespace

Error join_c(int rank, int world, const std::string& meeting, std::unique_ptr<Group>* group) {
  rondo_join_options_t options = RONDO_JOIN_OPTIONS_INIT;
  if (rank >= 0) {
    options.rank = rank;
    options.world = world;
    options.rendezvous = meeting.c_str();
  }
  rondo_comm_t comm = nullptr;
  const Error error = outcome(rondo_join(&comm, &options));
  if (comm != nullptr) *group = std::make_unique<CGroup>(comm);
  return error;
}

std::vector<std::unique_ptr<Group>> threads_c(int world) {
  std::vector<rondo_comm_t> comms(static_cast<size_t>(world), nullptr);
  const Error error = outcome(rondo_init_inproc(comms.data(), world));
  if (!error.ok()) throw std::runtime_error(error.message);
  std::vector<std::unique_ptr<Group>> groups;
  for (rondo_comm_t comm : comms) groups.push_back(std::make_unique<CGroup>(comm));
  return groups;
}

}  // namespace rondo::life
