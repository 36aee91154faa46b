#pragma once

#include <functional>
#include <memory>

#include "ring/base/descriptor.h"

namespace asio {
class io_context;
}

namespace rondo {

// Wakes the I/O thread for one that may not, or cannot, post: a signal handler, or a thread without memory. What is
// wanted is not said: the I/O thread looks at all that there may be to do.
class WakeEvent {
 public:
  // on_wake: called on the I/O thread, which may throw; after any number of rings, once. Throws Exception(kSystem).
  WakeEvent(asio::io_context& io, std::function<void()> on_wake);
  ~WakeEvent();

  // On the I/O thread, or before anybody can ring; once. Rings are heard from here on. Throws std::bad_alloc, and then
  // none ever is.
  void listen();
  void ring() const;                                              // any thread
  int descriptor() const { return event_.get(); }                 // an eventfd, for signal handlers
  bool closed() const { return !identity_.is_of(event_.get()); }  // by another part of the process

 private:
  struct Stream;

  const Descriptor event_;
  const FileIdentity identity_;
  const std::function<void()> on_wake_;
  const std::unique_ptr<Stream> stream_;
};

}  // namespace rondo
