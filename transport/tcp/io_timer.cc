#include "transport/tcp/io_timer.h"

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <utility>

namespace rondo {

struct IoTimer::State {
  explicit State(asio::io_context& io) : timer(io) {}
  asio::steady_timer timer;
};

IoTimer::IoTimer(asio::io_context& io) : state_(std::make_unique<State>(io)) {}

IoTimer::~IoTimer() = default;

void IoTimer::set(Clock::time_point when, std::function<void()> work) {
  state_->timer.expires_at(when);
  state_->timer.async_wait([work = std::move(work)](asio::error_code failure) {
    if (!failure) work();
  });
}

void IoTimer::cancel() { state_->timer.cancel(); }

}  // namespace rondo
