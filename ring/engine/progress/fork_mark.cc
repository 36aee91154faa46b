#include "ring/engine/progress/fork_mark.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>

#include "rondo/error.h"

namespace rondo {
namespace {

size_t page_bytes() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

// One for each process that needs it. Never freed: a child reads that of its parent.
std::atomic<char*> process_mark{nullptr};

const char* mark_of_process() {
  static const int failed = ::pthread_atfork(nullptr, nullptr, [] {
    if (char* const of_parent = process_mark.exchange(nullptr)) *of_parent = 0;
  });
  if (failed != 0) throw std::bad_alloc();
  auto* const mark = new char(1);
  char* known = nullptr;
  if (process_mark.compare_exchange_strong(known, mark)) return mark;
  delete mark;
  return known;
}

}  // namespace

ForkMark::ForkMark() {
  void* const page = ::mmap(nullptr, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw Exception(ErrorCode::kSystem, "no memory for a page that fork wipes");
  page_ = {page, [](void* mapped) { ::munmap(mapped, page_bytes()); }};
  if (::madvise(page, page_bytes(), MADV_WIPEONFORK) == 0) {
    *static_cast<char*>(page) = 1;
    mark_ = static_cast<const char*>(page);
    return;
  }
  page_ = nullptr;
  mark_ = mark_of_process();
}

}  // namespace rondo
