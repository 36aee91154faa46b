// Registered memory where the n-th allocation of the process fails, for every n until none does.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "csrc/errors.h"
#include "csrc/forks.h"
#include "csrc/memory.h"

namespace {

long allocations_left = -1;  // -1: none fails
size_t blocks = 0;           // of the library's memory
bool destroyed = false;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(1);
}

}  // namespace

void* operator new(size_t bytes) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  if (void* data = std::malloc(bytes)) return data;
  throw std::bad_alloc();
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }

// The library, as far as memory.cc calls it.
extern "C" {
rondo_result_t rondo_allocate(rondo_comm_t, uint64_t bytes, void** data) {
  if (allocations_left == 0) return RONDO_SYSTEM;
  if (allocations_left > 0) --allocations_left;
  *data = std::calloc(bytes, 1);
  ++blocks;
  return RONDO_OK;
}
rondo_result_t rondo_deallocate(rondo_comm_t, void* data) {
  std::free(data);
  --blocks;
  return RONDO_OK;
}
rondo_result_t rondo_close(rondo_comm_t) { return RONDO_OK; }
rondo_result_t rondo_destroy(rondo_comm_t) {
  destroyed = true;
  return RONDO_OK;
}
}

namespace rondo_torch {

int forks_so_far() { return 0; }
void fail(const std::string& text) { throw std::runtime_error(text); }
void check(rondo_result_t code) {
  if (code != RONDO_OK) throw std::bad_alloc();
}
void raise(const std::exception_ptr& failure) { std::rethrow_exception(failure); }
std::exception_ptr failure(rondo_result_t) { return std::make_exception_ptr(std::runtime_error("failed")); }

}  // namespace rondo_torch

namespace {

using rondo_torch::Arena;
using rondo_torch::GroupMemory;

// False: an allocation has failed.
template <typename Action>
bool with_failing(long at, Action action) {
  allocations_left = at;
  bool done = true;
  try {
    action();
  } catch (const std::bad_alloc&) {
    done = false;
  }
  const bool failed = allocations_left == 0;
  allocations_left = -1;
  expect(done || failed, "only what was to fail has failed");
  return done;
}

// A block fails; the next one is there, and the last one frees the communicator.
bool memory(long at) {
  destroyed = false;
  const auto memory = std::make_shared<GroupMemory>(reinterpret_cast<rondo_comm_t>(&destroyed));
  std::shared_ptr<void> block;
  const bool done = with_failing(at, [&] { block = memory->allocate(4096); });
  expect(blocks == (done ? 1U : 0U), "a failed block's memory is given back");
  std::shared_ptr<void> other = memory->allocate(4096);
  block.reset();
  memory->end();
  expect(!destroyed, "a tensor lives");
  other.reset();
  expect(destroyed && blocks == 0, "the last block frees the communicator");
  return done;
}

// A piece fails; the arena is as it was, and whole at the end, when no memory is needed to give pieces back.
bool arena(long at) {
  const auto memory = std::make_shared<GroupMemory>(reinterpret_cast<rondo_comm_t>(&destroyed));
  const auto arena = std::make_shared<Arena>(memory, 4096);
  std::shared_ptr<void> first = arena->allocate(100), second = arena->allocate(1000), third = arena->allocate(64);
  second.reset();
  std::shared_ptr<void> piece;
  const bool done = with_failing(at, [&] { piece = arena->allocate(500); });
  expect(done == (piece != nullptr), "a piece");
  const bool given_back = with_failing(0, [&] { first.reset(), piece.reset(), third.reset(); });
  expect(given_back, "giving back needs no memory");
  expect(arena->allocate(4097) == nullptr, "no piece larger than the arena");
  expect(arena->allocate(4096) != nullptr, "the arena is whole");
  return done;
}

}  // namespace

int main(int, char** arguments) {
  alarm(20);
  const bool of_memory = std::string(arguments[1]) == "memory";
  long at = 0;
  while (!(of_memory ? memory(at) : arena(at))) ++at;
  std::printf("%ld\n", at + 1);
}
