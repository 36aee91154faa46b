#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "transport/shared_memory.h"

namespace rondo {

// Pages that this rank shares with its island, one for each communicator (Fabric::page_of). A window is a
// mapping of many pages, twice as large as the window before. So most communicators need no mapping of their own.
class PageStore {
 public:
  static constexpr size_t kPageBytes = 4096;
  // A page that is lent: where it lies here, and how other ranks find it.
  struct Page {
    std::byte* data = nullptr;
    WindowPlace place;
  };
  using MakeWindow = std::function<std::shared_ptr<Window>(size_t bytes)>;

  explicit PageStore(MakeWindow make);

  // Zeroed, and no other's until the last copy of what is returned is gone. Throws Exception(kSystem). Any thread.
  std::shared_ptr<const Page> take();

 private:
  struct State;
  struct Lent;
  const MakeWindow make_;
  const std::shared_ptr<State> state_;  // shared with the pages that are out
};

}  // namespace rondo
