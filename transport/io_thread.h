#pragma once

#include <functional>
#include <memory>

namespace asio {
class io_context;
}

namespace rondo {

// One thread that runs an asio::io_context; signals go to the program's own threads. stop() may be called once; what
// was posted and has not run by then is dropped.
class IoThread {
 public:
  IoThread();  // throws Exception(kSystem)
  ~IoThread();
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  asio::io_context& context();
  void post(std::function<void()> work);  // any thread
  void stop();                            // not from the thread itself; joins it

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
