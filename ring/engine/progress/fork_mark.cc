#include "ring/engine/progress/fork_mark.h"

#include <pthread.h>

#include <atomic>

#include "rondo/error.h"

namespace rondo {
namespace {

// The mark of this process. It is never freed: objects that were copied into a child still read the parent's.
std::atomic<char*> process_mark{nullptr};

const char* mark_of_process() {
  static const int failed = ::pthread_atfork(nullptr, nullptr, [] {
    if (char* const of_parent = process_mark.exchange(nullptr)) *of_parent = 0;
  });
  if (failed != 0) throw Exception(ErrorCode::kSystem, "no memory for a handler of fork()");
  auto* const mark = new char(1);
  char* known = nullptr;
  if (process_mark.compare_exchange_strong(known, mark)) return mark;
  delete mark;
  return known;
}

}  // namespace

ForkMark::ForkMark() : mark_(mark_of_process()) {}

}  // namespace rondo
