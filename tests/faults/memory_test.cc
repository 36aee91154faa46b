// The k-th allocation of one rank's thread is refused inside a call, for every k: the call ends on all ranks, soon and
// alike, with success or an error; nothing is used after its end, and nothing is left. This binary has its own operator
// new, which counts.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "rondo/dist_opt.h"
#include "rondo/rondo.h"
#include "rondo/sparse.h"
#include "tests/support/eventually.h"
#include "tests/support/resources.h"
#include "tests/support/temp_folder.h"

namespace {

thread_local long left = 0;  // until the one that is refused; 0: none is
thread_local bool was_refused = false;
std::atomic<long> alive{0};
// `left` of the thread that carries messages between ranks that are threads of one process.
std::atomic<long> left_in_hub{0};
// That thread has no memory at all, and how often it has asked meanwhile.
std::atomic<bool> none_in_hub{false};
std::atomic<long> asked_in_vain{0};

bool in_hub() {
  char name[16] = "";
  return ::pthread_getname_np(::pthread_self(), name, sizeof name) == 0 && std::string_view(name) == "rondo-io";
}

void* take(size_t bytes) {
  if (left > 0 && --left == 0) {
    was_refused = true;
    return nullptr;
  }
  if (left_in_hub.load() > 0 && in_hub() && left_in_hub.fetch_sub(1) == 1) return nullptr;
  if (none_in_hub.load() && in_hub()) return asked_in_vain.fetch_add(1), nullptr;
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory != nullptr) alive.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void* take_or_throw(size_t bytes) {
  if (void* memory = take(bytes)) return memory;
  throw std::bad_alloc();
}

void give(void* memory) {
  if (memory != nullptr) alive.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes) { return take_or_throw(bytes); }
void* operator new[](size_t bytes) { return take_or_throw(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return take(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return take(bytes); }
void operator delete(void* memory) noexcept { give(memory); }
void operator delete[](void* memory) noexcept { give(memory); }
void operator delete(void* memory, size_t) noexcept { give(memory); }
void operator delete[](void* memory, size_t) noexcept { give(memory); }

namespace rondo::testing {
namespace {

using Floats = std::vector<float>;
// The memory of a call, which is given back as soon as the call has thrown.
struct Memory {
  Floats short_one = Floats(100, 1), other_short_one = Floats(100, 1), middle = Floats(30'000, 1);
  Floats sent = Floats(300'000, 1), got = Floats(300'000);
  std::atomic<int> calls{0};  // of a function of on_end()
};
using Call = std::function<void(Communicator&, Memory&)>;

// Far below the deadlines of calls and of starts, which no rank may wait for.
constexpr std::chrono::seconds kSoon{10};
constexpr size_t kWorld = 2;

struct Outcome {
  std::string call, barrier;  // "ok", or the error's name
  bool refused = false;
};

template <typename Action>
std::string outcome_of(const Action& call) {
  try {
    call();
  } catch (const Exception& e) {
    left = 0;
    return error_code_name(e.code());
  } catch (const std::bad_alloc&) {
    left = 0;
    return "no memory";
  }
  return "ok";
}

Outcome live(Communicator& group, const Call& call, long k) {
  Outcome outcome;
  std::optional<Memory> memory(std::in_place);
  was_refused = false;
  left = k;
  outcome.call = outcome_of([&] { call(group, *memory); });
  left = 0;
  outcome.refused = was_refused;
  memory.reset();
  outcome.barrier = outcome_of([&] { group.barrier(); });
  group.destroy();
  return outcome;
}

// Joins as processes do.
Communicator join(const std::string& transport, Config config, const TempFolder& folder, size_t rank) {
  config.transport = transport;
  JoinOptions options;
  options.rank = static_cast<int>(rank);
  options.world = kWorld;
  options.config = config;
  options.rendezvous = "file://" + folder.path("store");
  options.job_id = "memory";
  options.newcomers = "unix://" + folder.path("door");
  return Communicator::join(options);
}

// What is wrong; "": nothing. transport: between ranks that join as processes do; "": they are threads of one. `k`: of
// rank 0; 0: nothing is refused.
std::string check_life(const Call& call, const std::string& transport, long k, bool& refused) {
  Config config;
  config.timeout_ms = config.start_timeout_ms = 60'000;
  config.debug = "off";
  Outcome outcomes[kWorld];
  const auto begin = std::chrono::steady_clock::now();
  {
    const TempFolder folder;
    std::vector<Communicator> groups(kWorld);
    if (transport.empty()) groups = Communicator::inproc(kWorld, config);
    std::vector<std::thread> threads;
    std::barrier joined(kWorld);
    for (size_t r = 0; r < kWorld; ++r) {
      threads.emplace_back([&, r] {
        if (!transport.empty()) groups[r] = join(transport, config, folder, r);
        joined.arrive_and_wait();  // one that has not would throw what the other's call ends with
        outcomes[r] = live(groups[r], call, r == 0 ? k : 0);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  refused = outcomes[0].refused;
  std::string text;
  for (const Outcome& one : outcomes) text += fmt::format(" {}, then {};", one.call, one.barrier);
  if (text.find("INTERNAL") != std::string::npos) return "a bug:" + text;
  if (std::chrono::steady_clock::now() - begin > kSoon) return "too late:" + text;
  if ((outcomes[0].barrier == "ok") != (outcomes[1].barrier == "ok")) return "ranks differ:" + text;
  if (k == 0 && (outcomes[0].call != "ok" || outcomes[1].call != "ok")) return "no success:" + text;
  return "";
}

struct Named {
  std::string name;
  Call call;
  bool between_processes = false;
};

int other(const Communicator& group) { return 1 - group.rank(); }

void sum(Communicator& group, Floats& values) {
  group.all_reduce(values.data(), values.data(), values.size(), DType::kFloat32);
}

void run_batch(Communicator& group, Memory& memory, bool waits) {
  BatchScope calls(group);
  sum(group, memory.short_one);
  sum(group, memory.other_short_one);
  sum(group, memory.middle);
  group.send(memory.sent.data(), 300, DType::kFloat32, other(group));
  group.recv(memory.got.data(), 300, DType::kFloat32, other(group));
  if (waits) return calls.end();
  calls.end_async().wait();
}

void run_list(Communicator& group, Memory& memory, bool waits) {
  TensorRef list[3];
  Floats* const tensors[] = {&memory.short_one, &memory.other_short_one, &memory.middle};
  for (size_t i = 0; i < 3; ++i)
    list[i] = {tensors[i]->data(), tensors[i]->data(), tensors[i]->size(), DType::kFloat32};
  if (waits) return group.all_reduce_many(list);
  group.all_reduce_many_async(list).wait();
}

void run_sparse(Communicator& group, Memory& memory, double spars) {
  const uint64_t tensors[] = {10'000, 20'000};
  SparseOptions options;
  options.spars = spars;
  options.residual = memory.got.data();
  options.tensors = tensors;
  sparse_all_reduce(group, memory.middle.data(), memory.middle.data(), memory.middle.size(), options);
}

void run_dist_opt(Communicator& group, Memory& memory, Exchange exchange) {
  const std::vector<NamedGradient> list{{"first", memory.sent.data(), memory.middle.data(), 3'000},
                                        {"second", memory.got.data(), memory.short_one.data(), 7}};
  DistOptOptions options;
  options.exchange = exchange;
  options.bucket_bytes = 4096;
  DistOpt optimizer(group, list, options);
  optimizer.ready("second");
  optimizer.step([](const NamedGradient&) {});
  static_cast<void>(optimizer.save());
}

// Where the second call throws, the first one still has its memory until it has ended, as every asynchronous call has.
void run_messages(Communicator& group, Memory& memory, size_t count, int source) {
  Work in = group.recv_async(memory.got.data(), count, DType::kFloat32, source);
  std::exception_ptr thrown;
  try {
    group.send_async(memory.sent.data(), count, DType::kFloat32, other(group)).wait();
  } catch (...) {
    thrown = std::current_exception();
  }
  in.wait();
  if (thrown) std::rethrow_exception(thrown);
}

void run_pair(Communicator& group, Memory& memory, size_t count) {
  for (int sender = 0; sender < 2; ++sender) {
    if (group.rank() == sender) {
      group.send(memory.sent.data(), count, DType::kFloat32, 1 - sender);
    } else {
      group.recv(memory.got.data(), count, DType::kFloat32, kAnySource);
    }
  }
}

// The message that comes first is received last, so it waits in the library's memory, or its request does.
void run_in_another_order(Communicator& group, Memory& memory, size_t count) {
  if (group.rank() == 0) {
    for (const int tag : {2, 1}) group.recv(memory.got.data(), count, DType::kFloat32, 1, tag);
    return;
  }
  Work first = group.send_async(memory.sent.data(), count, DType::kFloat32, 0, 1);
  group.send_async(memory.sent.data(), count, DType::kFloat32, 0, 2).wait();
  first.wait();
}

// What waits for a receive is in the library's memory.
void run_to_itself(Communicator& group, Memory& memory) {
  for (const size_t count : {size_t{10}, memory.sent.size()}) {
    Work out = group.send_async(memory.sent.data(), count, DType::kFloat32, group.rank());
    std::exception_ptr thrown;
    try {
      group.recv(memory.got.data(), count, DType::kFloat32, group.rank());
    } catch (...) {
      thrown = std::current_exception();
    }
    out.wait();
    if (thrown) std::rethrow_exception(thrown);
  }
}

// A receive that is too short fails the communicator on both ranks, with the reason.
void run_mismatch(Communicator& group, Memory& memory) {
  try {
    run_pair(group, memory, group.rank() == 0 ? 20 : 10);
  } catch (const Exception& e) {
    if (e.code() != ErrorCode::kMismatch) throw;
  }
}

// What on_end() has taken is called, once: of a message to itself, which ends on this thread.
void run_end_function(Communicator& group, Memory& memory) {
  Work in = group.recv_async(memory.got.data(), 10, DType::kFloat32, group.rank());
  std::exception_ptr thrown;
  int awaited = 0;
  try {
    in.on_end([&calls = memory.calls](const Error&) { calls.fetch_add(1); });
    awaited = 1;
  } catch (...) {  // the receive goes on
    thrown = std::current_exception();
  }
  try {
    group.send_async(memory.sent.data(), 10, DType::kFloat32, group.rank()).wait();
  } catch (...) {
    thrown = std::current_exception();
  }
  left = 0;
  const bool called = eventually([&] { return in.done() && memory.calls.load() == awaited; }, 5'000);
  if (!called) throw Exception(ErrorCode::kInternal, "the function was not called");
  if (thrown) std::rethrow_exception(thrown);
}

// A function that a batch has refused for memory is taken when it is offered again, and none is called that was
// refused.
void run_end_function_of_batch(Communicator& group, Memory& memory) {
  BatchScope calls(group);
  sum(group, memory.middle);
  group.send(memory.sent.data(), 300, DType::kFloat32, other(group));
  group.recv(memory.got.data(), 300, DType::kFloat32, other(group));
  Work all = calls.end_async();
  const auto count = [&called = memory.calls](const Error&) { called.fetch_add(1); };
  try {
    all.on_end(count);
  } catch (const std::bad_alloc&) {
    all.on_end(count);
  }
  left = 0;
  if (!eventually([&] { return memory.calls.load() == 1; }, 5'000)) {
    throw Exception(ErrorCode::kInternal, "the function was not called");
  }
  all.wait();
}

void run_group(Communicator& made, Memory& memory) {
  sum(made, memory.short_one);
  left = 0;  // leaving is no part of it
}

void run_registered(Communicator& group) {
  constexpr size_t kCount = 100'000;
  float* values = nullptr;
  try {
    values = static_cast<float*>(group.allocate(kCount * sizeof(float)));
  } catch (const std::bad_alloc&) {
    throw Exception(ErrorCode::kInternal, "allocate() says kSystem");
  }
  group.all_reduce(values, values, kCount, DType::kFloat32);
  left = 0;
}

void refuse_each(const Named& named, const std::string& transport) {
  const std::string& name = named.name;
  const auto& call = named.call;
  CAPTURE(name);
  CAPTURE(transport);
  // Ranks that join by a store take ten times as long: every third of theirs, but for RONDO_WHOLE.
  const long step = transport.empty() || std::getenv("RONDO_WHOLE") != nullptr ? 1 : 3;
  bool refused = false;
  REQUIRE_EQ(check_life(call, transport, 0, refused), "");  // what is made once, is made
  long k = 1 - step;
  do {
    k += step;
    CAPTURE(k);
    ::alarm(60);  // a rank that never ends ends the test
    const long before = alive.load();
    const size_t descriptors = open_descriptors();
    const std::string wrong = check_life(call, transport, k, refused);
    CHECK_EQ(wrong, "");
    CHECK(eventually([&] { return alive.load() <= before && open_descriptors() == descriptors; }, 2'000));
    ::alarm(0);
  } while (refused && k < 3'000);
  MESSAGE(name, " ", transport, ": at most ", k - 1, " allocations");
  CHECK(k > 2);
  CHECK_FALSE(refused);
}

const Named kCalls[] = {
    {"split",
     [](Communicator& g, Memory& m) {
       Communicator made = g.split(0, other(g));
       run_group(made, m);
     },
     true},
    {"new_group",
     [](Communicator& g, Memory& m) {
       const int ranks[] = {1, 0};
       Communicator made = g.new_group(ranks);
       run_group(made, m);
     }},
    {"a batch", [](Communicator& g, Memory& m) { run_batch(g, m, true); }},
    {"a batch, asynchronous", [](Communicator& g, Memory& m) { run_batch(g, m, false); }},
    {"a list", [](Communicator& g, Memory& m) { run_list(g, m, true); }},
    {"a list, asynchronous", [](Communicator& g, Memory& m) { run_list(g, m, false); }},
    {"sparse, gathered", [](Communicator& g, Memory& m) { run_sparse(g, m, 0.01); }},
    {"sparse, dense", [](Communicator& g, Memory& m) { run_sparse(g, m, 1.0); }},
    {"DistOpt, int8", [](Communicator& g, Memory& m) { run_dist_opt(g, m, Exchange::kInt8); }},
    {"DistOpt, sparse", [](Communicator& g, Memory& m) { run_dist_opt(g, m, Exchange::kSparseTopK); }},
    {"DistOpt, parameters", [](Communicator& g, Memory& m) { run_dist_opt(g, m, Exchange::kLocalSgd); }},
    {"short messages", [](Communicator& g, Memory& m) { run_messages(g, m, 10, other(g)); }, true},
    {"long messages", [](Communicator& g, Memory& m) { run_messages(g, m, 300'000, other(g)); }, true},
    {"messages of any rank", [](Communicator& g, Memory& m) { run_messages(g, m, 300'000, kAnySource); }},
    {"send and recv", [](Communicator& g, Memory& m) { run_pair(g, m, 300'000); }},
    {"short send and recv", [](Communicator& g, Memory& m) { run_pair(g, m, 10); }},
    {"messages in another order", [](Communicator& g, Memory& m) { run_in_another_order(g, m, 300'000); }, true},
    {"short messages in another order", [](Communicator& g, Memory& m) { run_in_another_order(g, m, 10); }},
    {"messages to itself", [](Communicator& g, Memory& m) { run_to_itself(g, m); }},
    {"a receive that is too short", [](Communicator& g, Memory& m) { run_mismatch(g, m); }, true},
    {"sendrecv",
     [](Communicator& g, Memory& m) {
       g.sendrecv(m.sent.data(), m.sent.size(), other(g), m.got.data(), m.got.size(), other(g), DType::kFloat32);
     }},
    {"on_end", [](Communicator& g, Memory& m) { run_end_function(g, m); }},
    {"on_end of a batch", [](Communicator& g, Memory& m) { run_end_function_of_batch(g, m); }},
    {"all_reduce", [](Communicator& g, Memory& m) { sum(g, m.middle); }, true},
    {"all_reduce, registered", [](Communicator& g, Memory&) { run_registered(g); }, true},
    {"all_reduce, read by the kernel",  // into memory that is made inside an access to the others' buffers
     [](Communicator& g, Memory& m) {
       CallOptions options;
       options.algorithm = Algorithm::kPull;
       g.all_reduce(m.middle.data(), m.middle.data(), m.middle.size(), DType::kFloat32, Op::kSum, options);
     }},
    {"all_reduce, int8",
     [](Communicator& g, Memory& m) {
       CallOptions options;
       options.wire.format = WireFormat::kInt8;
       g.all_reduce(m.middle.data(), m.middle.data(), m.middle.size(), DType::kFloat32, Op::kSum, options);
     }},
    {"broadcast", [](Communicator& g, Memory& m) { g.broadcast(m.sent.data(), m.sent.size(), DType::kFloat32, 0); }},
    {"all_to_all",
     [](Communicator& g, Memory& m) { g.all_to_all(m.sent.data(), m.got.data(), m.sent.size() / 2, DType::kFloat32); }},
    {"all_reduce_async",
     [](Communicator& g, Memory& m) {
       g.all_reduce_async(m.middle.data(), m.middle.data(), m.middle.size(), DType::kFloat32).wait();
     }},
};

// Nobody comes. A rank on which nothing has failed but this call would leave the other one in it.
void look_for_newcomers(Communicator& group, bool grows) {
  try {
    static_cast<void>(group.newcomers());
    if (grows) static_cast<void>(group.grow(1, std::chrono::milliseconds(20)));
  } catch (const std::bad_alloc&) {
    throw Exception(ErrorCode::kInternal, "the other rank is in this call");
  } catch (const Exception& e) {
    if (e.code() != ErrorCode::kTimeout) throw;
  }
}

const Named kCallsOfJobs[] = {
    {"newcomers", [](Communicator& g, Memory&) { look_for_newcomers(g, false); }},
    {"grow", [](Communicator& g, Memory&) { look_for_newcomers(g, true); }},
};

// The thread between the ranks has no memory for a part of an abort: the rank that waits hears of that or of the abort,
// and both can leave. True: something was refused. What the first call makes is kept.
bool refuse_in_hub(long k, bool is_first) {
  CAPTURE(k);
  ::alarm(60);  // a rank that never ends ends the test
  const long before = alive.load();
  Config config;
  config.debug = "off";
  std::string outcome;
  bool refused = false;
  {
    std::vector<Communicator> groups = Communicator::inproc(kWorld, config);
    std::thread waits([&] {
      float value = 0;
      outcome = outcome_of([&] { groups[1].recv(&value, 1, DType::kFloat32, 0); });
    });
    left_in_hub.store(k);
    groups[0].abort("of a test");
    waits.join();
    refused = left_in_hub.exchange(0) == 0;
    for (Communicator& group : groups) group.destroy();
  }
  CHECK((outcome == "ABORTED" || outcome == "SYSTEM"));
  if (!is_first) CHECK(eventually([&] { return alive.load() <= before; }, 2'000));
  ::alarm(0);
  return refused;
}

// The k-th allocation of rondo_init_inproc() is refused. What the first calls make, and the room of the last error, is
// kept.
void refuse_inproc(long k, bool is_first) {
  CAPTURE(k);
  const long before = alive.load();
  rondo_comm_t comms[kWorld] = {};
  was_refused = false;
  left = k;
  const rondo_result_t result = rondo_init_inproc(comms, kWorld);
  left = 0;
  {
    std::vector<std::jthread> threads;
    for (const rondo_comm_t comm : comms) {
      CHECK((comm != nullptr) == (result == RONDO_OK));
      if (comm != nullptr) threads.emplace_back([comm] { rondo_destroy(comm); });
    }
  }
  if (!is_first) CHECK(eventually([&] { return alive.load() <= before; }, 2'000));
}

}  // namespace

TEST_CASE("the k-th allocation inside a call is refused") {
  for (const Named& named : kCalls) refuse_each(named, "");
}

TEST_CASE("between processes likewise") {
  for (const char* const transport : {"shm", "tcp"}) {
    for (const Named& named : kCalls) {
      if (named.between_processes) refuse_each(named, transport);
    }
  }
}

TEST_CASE("and where a job looks for newcomers") {
  for (const Named& named : kCallsOfJobs) refuse_each(named, "shm");
}

TEST_CASE("the k-th allocation of the thread between ranks of one process is refused") {
  refuse_in_hub(1'000'000, true);
  long k = 0;
  while (refuse_in_hub(++k, false) && k < 3'000) continue;
  CHECK(k > 2);
}

TEST_CASE("that thread has no memory for a while: it tries again, and takes no core for that") {
  constexpr long kTries = 50;
  Config config;
  config.debug = "off";
  std::vector<Communicator> groups = Communicator::inproc(kWorld, config);
  none_in_hub.store(true);
  const auto begin = std::chrono::steady_clock::now();
  groups[0].abort("of a test");
  CHECK(eventually([] { return asked_in_vain.load() >= kTries; }, 30'000));
  const auto took = std::chrono::steady_clock::now() - begin;
  none_in_hub.store(false);
  CHECK(took >= std::chrono::milliseconds(kTries / 2));  // some tries ask twice
  const std::string outcome = outcome_of([&] { groups[1].barrier(); });
  CHECK((outcome == "ABORTED" || outcome == "SYSTEM"));
  for (Communicator& group : groups) group.destroy();
}

TEST_CASE("rondo_init_inproc() hands out all communicators or none, and keeps none") {
  for (const bool is_first : {true, false}) {
    long k = 0;
    do refuse_inproc(++k, is_first);
    while (was_refused && k < 3'000);
    CHECK_FALSE(was_refused);
  }
}

}  // namespace rondo::testing
