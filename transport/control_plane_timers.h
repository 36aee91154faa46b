#pragma once

// Private to control_plane*.cc.

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "transport/control_plane.h"

namespace rondo {

struct ControlPlane::Timers {
  explicit Timers(asio::io_context& io) : logic(io), probe(io) {}
  asio::steady_timer logic, probe;
};

}  // namespace rondo
