#include "transport/tcp/io_timer.h"

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <utility>

namespace rondo {

struct IoTimer::State {
  explicit State(asio::io_context& io) : timer(io) {}
  asio::steady_timer timer;
  // From set() to cancel(), or until it is set anew. Asio calls the handler of a time that has come without an error,
  // whatever was done since.
  std::shared_ptr<const bool> is_set;
};

IoTimer::IoTimer(asio::io_context& io) : state_(std::make_unique<State>(io)) {}

IoTimer::~IoTimer() = default;

void IoTimer::set(Clock::time_point when, std::function<void()> work) {
  state_->timer.expires_at(when);
  state_->is_set = std::make_shared<const bool>(true);
  state_->timer.async_wait([is_set = std::weak_ptr(state_->is_set), work = std::move(work)](asio::error_code failure) {
    if (!failure && !is_set.expired()) work();
  });
}

void IoTimer::cancel() {
  state_->is_set.reset();
  state_->timer.cancel();
}

}  // namespace rondo
