#pragma once

// Private to switchboard*.cc.

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "transport/switchboard.h"

namespace rondo {

struct Switchboard::Timers {
  explicit Timers(asio::io_context& io) : logic(io), probe(io) {}
  asio::steady_timer logic, probe;
};

}  // namespace rondo
