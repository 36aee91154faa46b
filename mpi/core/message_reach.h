#pragma once

#include <atomic>
#include <cstdlib>
#include <span>

#include "mpi/core/reach.h"
#include "mpi/core/window_service.h"

namespace rondo_mpi {

// For ranks that do not all share memory: each asks the service of the other, and waits for its answer. The program's
// thread that waits makes progress meanwhile. Own memory is read and written here, and through the service where that
// must exclude other ranks.
class MessageReach final : public Reach {
 public:
  // Called by all ranks. base: of MPI_WIN_FLAVOR_CREATE; MPI_WIN_FLAVOR_ALLOCATE: memory is made here.
  MessageReach(const std::shared_ptr<Comm>& comm, int flavor, void* base, MPI_Aint size);
  ~MessageReach() override { close(); }

  std::byte* memory(int rank) const override;
  void attach(void* base, MPI_Aint bytes) override { service_->add(base, bytes); }
  void detach(const void* base) override { service_->remove(base); }
  void put(const Place& to, const std::byte* from) override;
  void get(const Place& from, std::byte* to) override;
  void update(const Place& at, const Op& op, const std::shared_ptr<const Type>& basic, const std::byte* in,
              std::byte* before) override;
  void swap(const Place& at, const std::byte* in, const std::byte* compare, std::byte* before) override;
  void lock(int rank, Lock how) override;
  void unlock(int rank, Lock how) override;
  void tell(Word what, const std::vector<int>& ranks) override;
  bool hear(Word what, const std::vector<int>& ranks, bool wait) override;
  void close() override { service_->close(); }

 private:
  std::byte* address(const Place& place) const;
  // An empty span as answer: none is waited for.
  void ask(int rank, WindowRequest request, std::span<const WindowRun> runs, std::span<const std::byte> data,
           std::span<std::byte> answer);
  template <typename Function>
  void for_requests(const Place& place, MPI_Count element, const Function& function) const;

  const std::shared_ptr<Comm> comm_;  // the window's
  std::unique_ptr<void, decltype(&std::free)> allocated_{nullptr, std::free};
  std::vector<std::byte*> bases_;           // of each rank's memory, as that rank has it
  std::shared_ptr<WindowService> service_;  // shared with its receive under way
  std::atomic<uint32_t> asked_{0};          // requests of all threads, for their tags
};

}  // namespace rondo_mpi
