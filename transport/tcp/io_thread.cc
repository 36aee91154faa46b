#include "transport/tcp/io_thread.h"

#include <sys/eventfd.h>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "ring/base/caught.h"
#include "ring/base/descriptor.h"
#include "ring/base/own_thread.h"
#include "ring/base/system_error.h"
#include "rondo/error.h"
#include "transport/doorbell.h"

namespace rondo {
namespace {

// Between two looks for work, once nothing can wake the thread: short against every timeout, and cheap.
constexpr std::chrono::milliseconds kBetweenPolls{20};

}  // namespace

class IoThread::State {
 public:
  explicit State(OnException on_exception)
      : work_(asio::make_work_guard(context_)),
        on_exception_(std::move(on_exception)),
        thread_(start_own_thread("rondo-io", [this] { run(); })) {}

  ~State() { stop(); }

  void stop() {
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  void poll_from_now_on() { polls_.store(true); }

  asio::io_context context_{1};  // one thread runs it

 private:
  // A handler's exception ends that handler; the loop goes on, since other ranks depend on this thread's heartbeats.
  void run() {
    while (!context_.stopped()) {
      try {
        if (!polls_.load()) {
          context_.run_one();
        } else {
          context_.poll();
          std::this_thread::sleep_for(kBetweenPolls);
        }
      } catch (...) {
        on_exception_(caught());
      }
    }
  }

  asio::executor_work_guard<asio::io_context::executor_type> work_;
  OnException on_exception_;
  std::atomic<bool> polls_{false};
  std::thread thread_;
};

IoThread::IoThread(OnException on_exception) {
  // Makes one of each thing that Asio is about to make, and throws where the system refuses one. Asio does not check
  // the result of epoll_ctl, and its thread would never wake.
  const Descriptor event([&] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!event.valid()) throw Exception(system_error("eventfd", errno));
  Doorbell needs_the_same(nullptr);
  needs_the_same.watch(event.get()).reset();
  try {
    state_ = std::make_unique<State>(std::move(on_exception));
  } catch (const std::system_error& failure) {  // epoll, eventfd or timerfd
    throw Exception(ErrorCode::kSystem, std::string("starting the I/O thread: ") + failure.what());
  }
}
IoThread::~IoThread() = default;
asio::io_context& IoThread::context() { return state_->context_; }
void IoThread::post(std::function<void()> work) { asio::post(state_->context_, std::move(work)); }
void IoThread::poll_from_now_on() { state_->poll_from_now_on(); }
void IoThread::stop() { state_->stop(); }

}  // namespace rondo
