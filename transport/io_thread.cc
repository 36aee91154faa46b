#include "transport/io_thread.h"

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "ring/base/own_thread.h"
#include "rondo/error.h"

namespace rondo {

class IoThread::State {
 public:
  State() : work_(asio::make_work_guard(context_)), thread_(start_own_thread("rondo-io", [this] { context_.run(); })) {}

  ~State() { stop(); }

  void stop() {
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  asio::io_context context_{1};  // one thread runs it

 private:
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;
};

IoThread::IoThread() {
  try {
    state_ = std::make_unique<State>();
  } catch (const std::system_error& failure) {  // epoll, eventfd or timerfd
    throw Exception(ErrorCode::kSystem, std::string("starting the I/O thread: ") + failure.what());
  }
}
IoThread::~IoThread() = default;
asio::io_context& IoThread::context() { return state_->context_; }
void IoThread::post(std::function<void()> work) { asio::post(state_->context_, std::move(work)); }
void IoThread::stop() { state_->stop(); }

}  // namespace rondo
