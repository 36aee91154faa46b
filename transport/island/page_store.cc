#include "transport/island/page_store.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

namespace rondo {
namespace {

// The first window is small, since a host may have hundreds of ranks with few communicators each, which all map it; the
// last ones are no larger than 256 communicators need.
constexpr size_t kFirstBytes = 4 * PageStore::kPageBytes, kMostBytes = 256 * PageStore::kPageBytes;

}  // namespace

// The pages of one rank. It outlives the store while pages are lent.
struct PageStore::State {
  std::mutex mutex;
  std::vector<std::shared_ptr<Window>> windows;
  size_t pages = 0;        // of all windows
  std::vector<Page> free;  // has room for all of them
  const pid_t pid = ::getpid();

  // Requires the lock. The pages of a new window are free, the first one next. free has room for all pages, so giving
  // one back does not allocate.
  void add(std::shared_ptr<Window> window) {
    const size_t more = window->bytes() / kPageBytes;
    free.reserve(pages + more);
    windows.push_back(std::move(window));
    const Window& added = *windows.back();
    for (size_t i = more; i-- > 0;) free.push_back({added.data() + i * kPageBytes, {added.id(), i * kPageBytes}});
    pages += more;
  }
};

// One page that is out. Its end gives the page back, without an allocation.
struct PageStore::Lent {
  Lent(std::shared_ptr<State> of, const Page& taken) : state(std::move(of)), page(taken) {}
  ~Lent() {
    if (state->pid != ::getpid()) return;  // the parent's
    std::lock_guard lock(state->mutex);
    state->free.push_back(page);
  }
  Lent(const Lent&) = delete;
  std::shared_ptr<State> state;
  Page page;
};

PageStore::PageStore(MakeWindow make) : make_(std::move(make)), state_(std::make_shared<State>()) {}

// Pages are cleared when they are taken and not when they come back: a peer may write to one until it has let go of it,
// and the last copy of the page is gone only then.
std::shared_ptr<const PageStore::Page> PageStore::take() {
  std::lock_guard lock(state_->mutex);
  if (state_->free.empty()) {
    const size_t last = state_->windows.empty() ? 0 : state_->windows.back()->bytes();
    state_->add(make_(std::clamp(2 * last, kFirstBytes, kMostBytes)));
  }
  const auto lent = std::make_shared<Lent>(state_, state_->free.back());
  state_->free.pop_back();
  std::memset(lent->page.data, 0, kPageBytes);
  return {lent, &lent->page};
}

}  // namespace rondo
