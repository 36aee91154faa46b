#include "transport/control/plane/wake_event.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "ring/base/system_error.h"

namespace rondo {
namespace {

Descriptor make_event() {
  Descriptor event([&] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!event.valid()) throw Exception(system_error("eventfd", errno));
  return event;
}

}  // namespace

// What Asio waits on. The descriptor is the event's.
struct WakeEvent::Stream {
  Stream(asio::io_context& io, int event) : stream(io, event) {}
  ~Stream() { stream.release(); }
  asio::posix::stream_descriptor stream;
};

WakeEvent::WakeEvent(asio::io_context& io, std::function<void()> on_wake)
    : event_(make_event()),
      identity_(event_.get()),
      on_wake_(std::move(on_wake)),
      stream_(std::make_unique<Stream>(io, event_.get())) {}

WakeEvent::~WakeEvent() = default;

// Armed before on_wake_ acts, which may throw for want of memory.
void WakeEvent::listen() {
  stream_->stream.async_wait(asio::posix::stream_descriptor::wait_read, [this](asio::error_code failure) {
    if (failure) return;
    uint64_t times = 0;
    static_cast<void>(!::read(event_.get(), &times, sizeof times));
    listen();
    on_wake_();
  });
}

void WakeEvent::ring() const {
  const uint64_t one = 1;
  static_cast<void>(!::write(event_.get(), &one, sizeof one));
}

}  // namespace rondo
