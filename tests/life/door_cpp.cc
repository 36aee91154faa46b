#include <utility>

#include "rondo/communicator.h"
#include "tests/life/door.h"

namespace rondo::life {
namespace {

template <typename Function>
Error outcome(const Function& function) {
  try {
    function();
    return {};
  } catch (const Exception& error) {
    return error.error();
  }
}

class CppHandle final : public Handle {
 public:
  explicit CppHandle(Work work) : work_(std::move(work)) {}
  bool done() override { return work_.done(); }
  Error wait() override {
    return outcome([&] { work_.wait(); });
  }
  void on_end(std::function<void()> function) override {
    work_.on_end([function = std::move(function)](const Error&) { function(); });
  }
  rondo::Message message() override { return work_.message(); }

 private:
  Work work_;
};

class CppGroup final : public Group {
 public:
  explicit CppGroup(Communicator communicator) : group_(std::move(communicator)) {}

  Error run(const Call& call, rondo::Message* message) override {
    return outcome([&] {
      const rondo::Message got = call_now(call);
      if (message != nullptr) *message = got;
    });
  }
  Error start(const Call& call, std::unique_ptr<Handle>* handle) override {
    return outcome([&] { *handle = std::make_unique<CppHandle>(call_async(call)); });
  }
  Error sparse(const float* in, float* out, uint64_t count, const SparseOptions& options) override {
    return outcome([&] { sparse_all_reduce(group_, in, out, count, options); });
  }
  Error batch_begin() override {
    return outcome([&] { group_.batch_begin(); });
  }
  Error batch_end(std::unique_ptr<Handle>* handle) override {
    return outcome([&] {
      if (handle == nullptr) return group_.batch_end();
      *handle = std::make_unique<CppHandle>(group_.batch_end_async());
    });
  }
  Error split(int color, int key, std::unique_ptr<Group>* group) override {
    return outcome([&] { keep(group_.split(color, key), group); });
  }
  Error new_group(const std::vector<int>& ranks, std::unique_ptr<Group>* group) override {
    return outcome([&] { keep(group_.new_group(ranks), group); });
  }
  Error attach_device() override {
    return outcome([&] { group_.attach_device(); });
  }
  Error shrink() override {
    return outcome([&] { group_ = group_.shrink(); });
  }
  Error grow(int newcomers) override {
    return outcome([&] { group_ = group_.grow(newcomers); });
  }
  Error commit(int64_t step, uint64_t digest) override {
    return outcome([&] { group_.commit(step, digest); });
  }
  int64_t committed() override { return group_.committed(); }
  uint64_t epoch() override { return group_.epoch(); }
  int rank() override { return group_.rank(); }
  int size() override { return group_.size(); }
  void* allocate(size_t bytes) override { return group_.allocate(bytes); }
  void deallocate(void* data) override { group_.deallocate(data); }
  Error abort(const std::string& reason) override {
    return outcome([&] { group_.abort(reason); });
  }
  Error error() override { return group_.error().value_or(Error{}); }
  Error destroy() override {
    return outcome([&] { group_.destroy(); });
  }
  Communicator* communicator() override { return &group_; }

 private:
  static void keep(Communicator made, std::unique_ptr<Group>* group) {
    if (made.valid()) *group = std::make_unique<CppGroup>(std::move(made));
  }
  rondo::Message call_now(const Call& call);
  Work call_async(const Call& call);

  Communicator group_;
};

// Both forms of the calls, which differ in the end of their names.
#define RONDO_LIFE_CALLS(form)                                                                                  \
  case Verb::kAllReduce:                                                                                        \
    return group_.all_reduce##form(c.in, c.out, c.count, c.dtype, c.op, c.options);                             \
  case Verb::kReduce:                                                                                           \
    return group_.reduce##form(c.in, c.out, c.count, c.dtype, c.op, c.root, c.options);                         \
  case Verb::kBroadcast:                                                                                        \
    return group_.broadcast##form(c.out, c.count, c.dtype, c.root, c.options);                                  \
  case Verb::kAllGather:                                                                                        \
    return group_.all_gather##form(c.in, c.out, c.count, c.dtype, c.options);                                   \
  case Verb::kReduceScatter:                                                                                    \
    return group_.reduce_scatter##form(c.in, c.out, c.count, c.dtype, c.op, c.options);                         \
  case Verb::kGather:                                                                                           \
    return group_.gather##form(c.in, c.out, c.count, c.dtype, c.root, c.options);                               \
  case Verb::kScatter:                                                                                          \
    return group_.scatter##form(c.in, c.out, c.count, c.dtype, c.root, c.options);                              \
  case Verb::kAllToAll:                                                                                         \
    return group_.all_to_all##form(c.in, c.out, c.count, c.dtype, c.options);                                   \
  case Verb::kBarrier:                                                                                          \
    return group_.barrier##form(c.options);                                                                     \
  case Verb::kAllGatherV:                                                                                       \
    return group_.all_gather_v##form(c.in, c.out, c.counts, c.displacements, c.dtype, c.options);               \
  case Verb::kReduceScatterV:                                                                                   \
    return group_.reduce_scatter_v##form(c.in, c.out, c.counts, c.dtype, c.op, c.options);                      \
  case Verb::kGatherV:                                                                                          \
    return group_.gather_v##form(c.in, c.count, c.out, c.counts, c.displacements, c.dtype, c.root, c.options);  \
  case Verb::kScatterV:                                                                                         \
    return group_.scatter_v##form(c.in, c.counts, c.displacements, c.out, c.count, c.dtype, c.root, c.options); \
  case Verb::kAllToAllV:                                                                                        \
    return group_.all_to_all_v##form(c.in, c.counts, c.displacements, c.out, c.out_counts, c.out_displacements, \
                                     c.dtype, c.options);                                                       \
  case Verb::kAllReduceMany:                                                                                    \
    return group_.all_reduce_many##form(c.tensors, c.op, c.options);                                            \
  case Verb::kScan:                                                                                             \
    return group_.scan##form(c.in, c.out, c.count, c.dtype, c.op, c.options);                                   \
  case Verb::kExscan:                                                                                           \
    return group_.exscan##form(c.in, c.out, c.count, c.dtype, c.op, c.options);                                 \
  case Verb::kSend:                                                                                             \
    return group_.send##form(c.in, c.count, c.dtype, c.root, c.tag, c.options);

rondo::Message CppGroup::call_now(const Call& c) {
  if (c.verb == Verb::kMatchedProbe) return group_.mprobe(c.root, c.tag, c.options);
  if (c.matched != 0) return group_.mrecv(c.out, c.count, c.dtype, c.matched, c.options);
  if (c.verb == Verb::kRecv) return group_.recv(c.out, c.count, c.dtype, c.root, c.tag, c.options);
  if (c.verb == Verb::kSendRecv) {
    return group_.sendrecv(c.in, c.count, c.to, c.out, c.count, c.root, c.dtype, c.tag, c.options);
  }
  [&] {
    switch (c.verb) {
      RONDO_LIFE_CALLS()
      default:
        break;
    }
  }();
  return {};
}

Work CppGroup::call_async(const Call& c) {
  switch (c.verb) {
    RONDO_LIFE_CALLS(_async)
    case Verb::kRecv:
      if (c.matched != 0) return group_.mrecv_async(c.out, c.count, c.dtype, c.matched, c.options);
      return group_.recv_async(c.out, c.count, c.dtype, c.root, c.tag, c.options);
    default:
      throw Exception(ErrorCode::kInvalid, "sendrecv and probes have no asynchronous form here");
  }
}
#undef RONDO_LIFE_CALLS

}  // namespace

Error join_cpp(int rank, int world, const std::string& meeting, std::unique_ptr<Group>* group) {
  return outcome([&] {
    JoinOptions options;
    if (rank >= 0) {
      options.rank = rank;
      options.world = world;
      options.rendezvous = meeting;
    }
    *group = std::make_unique<CppGroup>(Communicator::join(options));
  });
}

std::vector<std::unique_ptr<Group>> threads_cpp(int world) {
  std::vector<std::unique_ptr<Group>> groups;
  for (Communicator& group : Communicator::inproc(world, Config::from_environment())) {
    groups.push_back(std::make_unique<CppGroup>(std::move(group)));
  }
  return groups;
}

}  // namespace rondo::life
