#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "mpi/core/objects.h"

namespace rondo_mpi {

// --- Messages of a window whose ranks share no memory, by tags of its communicator. A request is a WindowRequest, its
// runs, then its data: for kPut and kUpdate what goes to the runs, for kSwap that and what is compared.

enum class WindowAction : uint8_t { kPut, kGet, kUpdate, kSwap, kLockShared, kLockExclusive, kUnlock };
// Both are sent as they lie in memory: all ranks run one build, on machines of one byte order. The target checks each
// number.
struct WindowRequest {
  WindowAction action;
  uint8_t op = 0, type = 0;  // kUpdate: places of a named operation and of the elements' named type
  bool fetches = false;      // kUpdate: the answer has what was there
  int32_t answer = 0;        // tag of the answer
  uint32_t runs = 0;
  uint32_t unused = 0;
};
struct WindowRun {
  uint64_t begin, bytes;  // begin: the address there
};
// The data of a message is aligned to 16 bytes, as any element is.
static_assert(sizeof(WindowRequest) == 16 && sizeof(WindowRun) == 16);

// The tags. kAnswers: the first one of the answers to a process, which numbers what it asks.
enum WindowTag : int { kRequests, kPosted, kCompleted, kAnswers };
// The answer to kPut, locks, and an update that fetches nothing is one byte; else what was in the runs. No byte: a run
// is not in the window. kUnlock has none.

// What one request moves at most. Larger ones make 10 Gbit/s no faster, and a rank's service has a buffer for one.
inline constexpr size_t kMostRequestBytes = 1 << 20;
inline constexpr size_t kMostRequestRuns = 8192;

// The target's side of a window: does what others ask for in messages, one after the other, on the engine's thread for
// Work::on_end(). Any thread may call. So a target that computes, and calls nothing of MPI, still answers: passive
// target communication of MPI needs that. While a request is served, other operations that no thread waits for stand
// still.
class WindowService : public std::enable_shared_from_this<WindowService> {
 public:
  explicit WindowService(const std::shared_ptr<Comm>& comm);

  // Memory that others may read and write: disjoint pieces.
  void add(const void* base, MPI_Aint bytes);
  void remove(const void* base);
  // Serves until close(), or until the communicator fails.
  void start() { listen(); }
  // Touches no memory of the program's afterwards.
  void close();

 private:
  // Addresses of this process.
  struct Piece {
    uintptr_t begin;
    size_t bytes;
  };
  // A rank that wants a lock.
  struct Waiting {
    int rank;
    int32_t answer;
    bool exclusive;
  };
  struct Runs;
  struct Answer {
    int rank;
    int32_t tag;
    std::vector<std::byte> bytes;
  };

  // These run on the engine's thread, but for the first listen(). serve() and what it calls hold the mutex; nothing
  // that makes progress is called under it, since that may call a function of the program.
  void listen();
  void came(const rondo::Message& message);
  static void send(rondo::Communicator& engine, Answer answer);
  void serve(const rondo::Message& message);
  void move(int rank, const WindowRequest& request, const Runs& runs);
  std::vector<std::byte> update(const WindowRequest& request, const Runs& runs);
  bool has(const WindowRun& run) const;
  void unlock();
  void grant();
  void answer(int rank, int32_t tag, std::vector<std::byte> bytes) {
    answers_.push_back({rank, tag, std::move(bytes)});
  }

  const std::unique_ptr<std::byte[]> request_;  // what came; filled by the engine, read under the mutex

  std::mutex mutex_;            // of all that follows, and of the memory that others read and write
  std::shared_ptr<Comm> comm_;  // shared with the window, whose thread ends it; null: closed
  std::vector<Piece> pieces_;
  std::vector<Answer> answers_;  // of the request that is served
  std::deque<Waiting> waiting_;  // in the order of their requests
  int locked_ = 0;               // by so many; -1: by one alone
};

}  // namespace rondo_mpi
