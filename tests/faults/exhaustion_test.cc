// What the system refuses: the k-th allocation, or the k-th system call, of joining, calls and leaving, for each
// --seeds-th k (all of them with --seeds=1; Bazel's shards divide them). This binary has its own operator new and its
// own system calls. Rank 0 of 2 is refused; both must end with success or an error, soon, and with nothing left open.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>

#include "rondo/sparse.h"
#include "tests/engine/arguments.h"
#include "tests/faults/ranks.h"
#include "transport/rendezvous/door.h"
#include "transport/tcp/data_sockets.h"
#include "transport/tcp/socket.h"

namespace {

enum class Refuse { kNothing, kMemory, kSystem };
std::atomic<Refuse> refuse{Refuse::kNothing};
std::atomic<long> left{0};  // until the one that is refused

// Counts one; whether it is the one.
bool refused(Refuse what) {
  return refuse.load(std::memory_order_relaxed) == what && left.fetch_sub(1, std::memory_order_relaxed) == 1;
}

void* take(size_t bytes, size_t alignment) {
  if (refused(Refuse::kMemory)) return nullptr;
  void* memory = nullptr;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes == 0 ? 1 : bytes);
  return ::posix_memalign(&memory, alignment, bytes == 0 ? 1 : bytes) == 0 ? memory : nullptr;
}

void* take_or_throw(size_t bytes, size_t alignment) {
  if (void* memory = take(bytes, alignment)) return memory;
  throw std::bad_alloc();
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

void* operator new(size_t bytes) { return take_or_throw(bytes, 1); }
void* operator new[](size_t bytes) { return take_or_throw(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return take_or_throw(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return take_or_throw(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return take(bytes, 1); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return take(bytes, 1); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

// Calls that give `failure` and an errno.
#define REFUSABLE_AS(type, failure, name, error, parameters, arguments) \
  extern "C" type name parameters {                                     \
    static const auto real = next<type(*) parameters>(#name);           \
    if (refused(Refuse::kSystem)) return errno = (error), (failure);    \
    return real arguments;                                              \
  }
#define REFUSABLE(name, error, parameters, arguments) REFUSABLE_AS(int, -1, name, error, parameters, arguments)
#define REFUSABLE_TRANSFER(name, parameters, arguments) REFUSABLE_AS(ssize_t, -1, name, ENOMEM, parameters, arguments)
REFUSABLE(socket, EMFILE, (int domain, int type, int protocol) noexcept, (domain, type, protocol))
REFUSABLE(socketpair, EMFILE, (int domain, int type, int protocol, int* fds) noexcept, (domain, type, protocol, fds))
REFUSABLE(bind, ENOBUFS, (int fd, const sockaddr* address, socklen_t size) noexcept, (fd, address, size))
REFUSABLE(listen, ENOBUFS, (int fd, int backlog) noexcept, (fd, backlog))
REFUSABLE(accept4, EMFILE, (int fd, sockaddr* address, socklen_t* size, int flags), (fd, address, size, flags))
REFUSABLE(accept, EMFILE, (int fd, sockaddr* address, socklen_t* size), (fd, address, size))
REFUSABLE(connect, ENOBUFS, (int fd, const sockaddr* address, socklen_t size), (fd, address, size))
REFUSABLE(getsockname, ENOBUFS, (int fd, sockaddr* address, socklen_t* size) noexcept, (fd, address, size))
REFUSABLE(epoll_create1, EMFILE, (int flags) noexcept, (flags))
REFUSABLE(epoll_ctl, ENOMEM, (int fd, int action, int of, epoll_event* event) noexcept, (fd, action, of, event))
REFUSABLE(eventfd, EMFILE, (unsigned count, int flags) noexcept, (count, flags))
REFUSABLE(timerfd_create, EMFILE, (int clock, int flags) noexcept, (clock, flags))
REFUSABLE(memfd_create, EMFILE, (const char* name, unsigned flags) noexcept, (name, flags))
REFUSABLE(ftruncate, ENOSPC, (int fd, off_t size) noexcept, (fd, size))
REFUSABLE(setsockopt, ENOBUFS, (int fd, int level, int name, const void* value, socklen_t size) noexcept,
          (fd, level, name, value, size))
REFUSABLE(getsockopt, ENOBUFS, (int fd, int level, int name, void* value, socklen_t* size) noexcept,
          (fd, level, name, value, size))
REFUSABLE_AS(void*, MAP_FAILED, mmap, ENOMEM,
             (void* place, size_t bytes, int access, int flags, int fd, off_t offset) noexcept,
             (place, bytes, access, flags, fd, offset))
REFUSABLE_TRANSFER(sendmsg, (int fd, const msghdr* message, int flags), (fd, message, flags))
REFUSABLE_TRANSFER(recvmsg, (int fd, msghdr* message, int flags), (fd, message, flags))
REFUSABLE_TRANSFER(process_vm_readv,
                   (pid_t pid, const iovec* to, unsigned long parts, const iovec* from, unsigned long sources,
                    unsigned long flags) noexcept,
                   (pid, to, parts, from, sources, flags))

// Its error is its result.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                              void* argument) noexcept {
  static const auto real = next<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  if (refused(Refuse::kSystem)) return EAGAIN;
  return real(thread, attributes, body, argument);
}

namespace rondo::testing {
namespace {

// Which of the values of k are this process's: Bazel's shards, numbered from 0.
struct Shard {
  Shard() {
    const char *count = std::getenv("TEST_TOTAL_SHARDS"), *index = std::getenv("TEST_SHARD_INDEX");
    if (count == nullptr || index == nullptr) return;
    of = std::stol(count);
    number = std::stol(index);
    if (const char* file = std::getenv("TEST_SHARD_STATUS_FILE")) std::ofstream{file};
  }
  long number = 0, of = 1;
};

// What the descriptors of this process are, in their order: what leaked is among the last.
std::string open_files() {
  std::string text;
  for (int fd = 0; fd < 256; ++fd) {
    std::error_code none;
    const auto file = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", fd), none);
    if (!none) text += file.string() + " ";
  }
  return text;
}

// Calls that are made of parts.
void run_parts(Communicator& group, std::vector<float>& values) {
  Communicator made = group.split(0, -group.rank());
  std::vector<float> sent(20'000), got(20'000);
  BatchScope calls(made);
  made.all_reduce(values.data(), values.data(), 100, DType::kFloat32);
  made.all_reduce(values.data() + 100, values.data() + 100, 100, DType::kFloat32);
  made.send(sent.data(), sent.size(), DType::kFloat32, 1 - made.rank());
  made.recv(got.data(), got.size(), DType::kFloat32, 1 - made.rank());
  calls.end();
  sparse_all_reduce(made, values.data(), values.data(), values.size());
}

// One whole life of a rank. `k`: what is refused of it; 0: nothing.
void live(Here& here, const std::string& meeting, Refuse what, long k) {
  JoinOptions options = here.options;
  options.rendezvous = "file://" + meeting;
  const Resources before = Resources::now();
  const auto start = std::chrono::steady_clock::now();
  left.store(k);
  refuse.store(k > 0 ? what : Refuse::kNothing);
  std::string said = "ok";
  try {
    Communicator group = Communicator::join(options);
    std::vector<float> values(1000, 1);
    group.all_reduce(values.data(), values.data(), values.size(), DType::kFloat32);
    run_parts(group, values);
    group.destroy();
  } catch (const Exception& failure) {
    refuse.store(Refuse::kNothing);
    said = error_code_name(failure.code());
  } catch (const std::bad_alloc&) {
    refuse.store(Refuse::kNothing);
    said = "no memory";
  }
  refuse.store(Refuse::kNothing);
  const bool reached = k > 0 && left.load() <= 0;
  Resources after{};
  const bool clean = eventually(
      [&] {
        after = Resources::now();
        return after.descriptors == before.descriptors && after.threads == before.threads;
      },
      2'000);
  here.say(
      fmt::format("{} {}{}{}", ms_since(start), said, reached ? "" : " (not reached)",
                  clean ? ""
                        : fmt::format(" LEAKED {} descriptors, {} threads: {}", after.descriptors - before.descriptors,
                                      after.threads - before.threads, open_files())));
}

void refuse_each(Refuse what, const char* transport, long stride) {
  TempFolder folder;
  Config config = fault_config(transport);
  config.start_timeout_ms = 1'000;
  config.destroy_timeout_ms = 2'000;
  config.timeout_ms = 3'000;
  const auto body = [&](Here& here) {
    while (true) {
      const long k = std::stol(here.await());
      live(here, folder.path(fmt::format("meeting{}", k)), what, here.rank() == 0 ? k : 0);
    }
  };
  std::optional<Job> job;
  int tried = 0, failed = 0;
  int64_t longest_ms = 0;
  bool reached = true;
  const Shard shard;
  for (long k = 0; reached; k += k == 0 ? 1 + stride * shard.number : stride * shard.of) {
    CAPTURE(k);
    if (tried % 10 == 0) job.emplace().start(2, body, config);  // a process lives for a minute at most
    job->tell_all(fmt::format("{}", k));
    for (int rank = 0; rank < 2; ++rank) {
      const Timed said = timed_line((*job)[rank].hear(15'000));
      CAPTURE(rank);
      CAPTURE(said.outcome);
      REQUIRE(said.elapsed_ms >= 0);  // it lives
      longest_ms = std::max(longest_ms, said.elapsed_ms);
      CHECK_FALSE(said.has("LEAKED"));
      if (k == 0) REQUIRE(said.begins("ok"));
      if (rank == 0 && k > 0) {
        reached = said.outcome != "ok (not reached)";
        failed += !said.begins("ok");
      }
    }
    ++tried;
  }
  MESSAGE(std::string(transport), ": ", tried, " lives, ", failed, " ended with an error");
  check_within(60, longest_ms, 9'000);
  CHECK(tried > 2);
  CHECK(failed > 0);
}

}  // namespace

// Within a rank's life the same comes at another k each time.
TEST_CASE("fault 60: a data socket for which there is no memory leaves no lock held") {
  DataSockets sockets(0);
  std::shared_ptr<void> added;
  for (long k = 1; added.use_count() == 0; ++k) {
    REQUIRE(k < 10);
    ::alarm(10);  // a lock that is held ends the test
    left.store(k);
    refuse.store(Refuse::kMemory);
    try {
      added = sockets.add({1, 1}, -1);
    } catch (const std::bad_alloc&) {
    }
    refuse.store(Refuse::kNothing);
    CHECK(sockets.look(k).empty());
    ::alarm(0);
  }
}

// Refuses the k-th allocation of the call, for each k: its outcome, as long as it makes so many.
std::optional<std::string> refused_in(long k, const std::function<void()>& call) {
  ::alarm(10);  // a wait without an end ends the test
  left.store(k);
  refuse.store(Refuse::kMemory);
  std::string said = "no memory";
  try {
    said = outcome(call);
  } catch (const std::bad_alloc&) {
  }
  refuse.store(Refuse::kNothing);
  ::alarm(0);
  return left.load() <= 0 ? std::optional(said) : std::nullopt;
}

TEST_CASE("fault 60: a rank without memory to look who waits for it does not wait for its own thread") {
  TempFolder folder;
  Launch launch;
  launch.newcomers = "unix://" + folder.path("door");
  launch.job_id = "fault test";
  const Config config = fault_config();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const Child newcomer([&](Parent&) {
    await_seat(launch, config, limit);
    return 0;
  });
  const Door door(launch, config, limit);
  REQUIRE(eventually([&] { return door.waiting() == 1; }));
  long tried = 0;
  while (refused_in(++tried, [&] { door.await(1, limit); })) continue;
  CHECK(tried > 3);
  CHECK(door.await(1, limit).size() == 1);
}

TEST_CASE("fault 60: a rank without memory for the addresses of a name does not wait for a name server") {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  long tried = 0;
  while (refused_in(++tried, [&] { resolve("localhost", 1, limit); })) continue;
  CHECK(tried > 3);
}

// Joins, takes in a newcomer, or comes as one, and adds. Of rank 0 the k-th allocation from grow() on is refused.
std::string grow_once(Here& here, const std::string& meeting, long k) {
  JoinOptions options = here.options;
  options.newcomers = "unix://" + meeting + ".door";
  if (here.rank() >= 0) options.rendezvous = "file://" + meeting;
  Communicator group = Communicator::join(options);
  if (here.rank() >= 0) {
    while (group.newcomers() == 0) continue;
    left.store(k);
    refuse.store(here.rank() == 0 ? Refuse::kMemory : Refuse::kNothing);
    group = group.grow(1);
    refuse.store(Refuse::kNothing);
  }
  std::vector<float> values(1000, 1);
  group.all_reduce(values.data(), values.data(), values.size(), DType::kFloat32);
  return fmt::format("in epoch {}", group.epoch());
}

TEST_CASE("fault 60: memory is refused to a rank that starts with newcomers: it goes on with the others") {
  TempFolder folder;
  Config config = fault_config();
  config.start_timeout_ms = 3'000;
  const auto body = [&](Here& here) {
    for (int life = 0;; ++life) {
      const long k = std::stol(here.await());
      std::string state = "no memory";
      try {
        const std::string said =
            outcome([&] { state = grow_once(here, folder.path(fmt::format("meeting{}", life)), k); });
        if (said != "ok") state = said;
      } catch (const std::bad_alloc&) {
      }
      refuse.store(Refuse::kNothing);
      here.say(fmt::format("{} {}", left.load(), state));
    }
  };
  Job job;
  job.start(2, body, config);
  JoinOptions newcomer = job.options(-1, -1, config);
  newcomer.rendezvous.clear();
  job.ranks.emplace_back(newcomer, body);
  constexpr long kMost = 1'000'000;
  long made = 0;  // by rank 0 in grow(); the start makes all but the first and the last fifth of them
  for (const long percent : {0, 55}) {
    CAPTURE(percent);
    job.tell_all(fmt::format("{}", percent == 0 ? kMost : made * percent / 100));
    for (int rank = 0; rank < job.world(); ++rank) {
      CAPTURE(rank);
      const std::string said = job[rank].hear();
      CAPTURE(said);
      if (rank == 0 && percent == 0) made = kMost - std::stol(said);
      if (rank < 2) CHECK(said.find(" in epoch 1") != std::string::npos);
    }
  }
}

TEST_CASE("fault 60: a rank without memory for a word to those that wait leaves") {
  TempFolder folder;
  Job job;
  JoinOptions options = job.options(0, 1);
  options.newcomers = "unix://" + folder.path("door");
  long tried = 0;
  bool reached = true;
  while (reached) {
    std::optional<Communicator> group = Communicator::join(options);
    REQUIRE(group->newcomers() == 0);
    reached = refused_in(++tried, [&] { group.reset(); }).has_value();
  }
  CHECK(tried > 3);
}

TEST_CASE("fault 60: the k-th allocation of a rank's life is refused") {
  const long stride = static_cast<long>(seed_range(211).second);
  for (const char* transport : {"tcp", "auto"}) refuse_each(Refuse::kMemory, transport, std::max(stride, 1L));
}

TEST_CASE("fault 60: the k-th system call of a rank's life is refused") {
  const long stride = static_cast<long>(seed_range(211).second);
  for (const char* transport : {"tcp", "auto"}) {
    refuse_each(Refuse::kSystem, transport, std::max(stride / 20, 1L));
  }
}

}  // namespace rondo::testing
