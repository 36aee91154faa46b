#pragma once

// Private to control_plane*.cc.

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <map>
#include <utility>

#include "ring/base/descriptor.h"
#include "transport/control/control_plane.h"

namespace rondo {

struct ControlPlane::Timers {
  Timers(asio::io_context& io, int wake_event) : logic(io), probe(io), look(io), wake(io, wake_event) {}
  ~Timers() { wake.release(); }
  asio::steady_timer logic, probe, look;
  asio::posix::stream_descriptor wake;  // the descriptor is ControlPlane's
  // The process of a rank that is lost and may live.
  struct Process {
    Process(asio::io_context& io, Descriptor of) : handle(std::move(of)), end(io, handle.get()) {}
    ~Process() { end.release(); }
    Descriptor handle;
    asio::posix::stream_descriptor end;
  };
  std::map<int, Process> processes;  // by rank
};

}  // namespace rondo
