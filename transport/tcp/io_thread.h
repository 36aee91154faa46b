#pragma once

#include <functional>
#include <memory>

#include "rondo/error.h"

namespace asio {
class io_context;
}

namespace rondo {

// One thread that runs an asio::io_context; signals go to the program's own threads. What was posted and has not run
// when stop() is called is dropped. Handlers run one after another, so what only they touch needs no lock.
//
// What a handler throws ends that handler alone: `on_exception` is called, on the thread, and the thread goes on.
class IoThread {
 public:
  using OnException = std::function<void(const Error&)>;
  explicit IoThread(OnException on_exception);  // throws Exception(kSystem)
  ~IoThread();
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  asio::io_context& context();
  // Any thread. Throws std::bad_alloc, and then nothing has happened.
  void post(std::function<void()> work);  // any thread
  // Its descriptors are closed, so nothing wakes it: it looks for work now and then instead. Any thread.
  void poll_from_now_on();
  // Joins the thread. Not from the thread itself. A second call does nothing.
  void stop();  // not from the thread itself; joins it

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
