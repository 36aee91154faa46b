#include "ring/engine/device/stream_operation.h"

#include <algorithm>
#include <utility>

#include "ring/base/caught.h"
#include "ring/engine/progress/flow.h"

namespace rondo {
namespace {

// How long a wait lasts before the stream is asked to ring at the end. Nearly all waits behind a short kernel
// are over sooner, and put nothing into a stream.
constexpr std::chrono::microseconds kBeforeRinging{200};

}  // namespace

// The last owner may be a function in a stream, before free_all().
StreamOperation::~StreamOperation() {
  if (event_ != nullptr) options_.calls->give_back(options_.device, event_);
  give_back_room();
}

bool StreamOperation::take_room(const std::function<bool()>& stop) {
  const uint32_t needed = entries();
  if (!options_.calls->begin(needed, stop)) return false;
  entries_ = needed;
  event_ = options_.calls->take_event(options_.device);
  return true;
}

void StreamOperation::give_back_room() {
  if (entries_ > 0) options_.calls->end(std::exchange(entries_, 0));
}

void StreamOperation::give_back_room_with(const uint32_t* passed, uint32_t number) {
  options_.calls->end_once_passed(passed, number, std::exchange(entries_, 0));
}

void StreamOperation::copy(const std::vector<Piece::Rows>& parts, std::byte* region, bool in, DeviceStream stream) {
  for (const Piece::Rows& rows : parts) {
    std::byte* const at = region + rows.region;
    const DeviceCopy copy =
        in ? DeviceCopy{at, rows.device, rows.region_pitch, rows.device_pitch, rows.row_bytes, rows.rows}
           : DeviceCopy{rows.device, at, rows.device_pitch, rows.region_pitch, rows.row_bytes, rows.rows};
    driver_.check(driver_.copy(copy, stream), "putting a copy into the stream");
  }
}

bool StreamOperation::record_end() {
  try {
    driver_.check(driver_.record(event_, options_.stream), "putting an event into the stream");
    return true;
  } catch (...) {
    const Error error = options_.calls->broken(StreamCalls::Look::kNow).value_or(caught());
    note_error(error);
    options_.give_up(error);
    flow->notify();
    return false;
  }
}

void StreamOperation::note_error(const Error& error) {
  std::lock_guard lock(mutex_);
  if (error_.ok()) error_ = error;
}

void StreamOperation::end_whole() {
  Error error;
  {
    std::lock_guard lock(mutex_);
    error = error_;
  }
  end(error.ok() ? nullptr : &error);
}

void StreamOperation::wait_on(DeviceStream stream) {
  check_submitted("wait_on()");
  driver_.check(driver_.wait(stream, event_), "putting a wait into the stream");
}

bool StreamOperation::poll() {
  if (!Operation::poll()) look_at_device();
  return done();
}

// Waits a short time for an end that the flow finds by itself; then asks the stream to ring, and looks for a
// failed device once a second.
bool StreamOperation::wait(Clock::time_point until) {
  const Clock::time_point first = std::min(until, Clock::now() + kBeforeRinging);
  if (Operation::wait(first)) return true;
  if (first < until) ring_at_end();
  while (true) {
    const Clock::time_point next = std::min(until, Clock::now() + kBetweenLooksAtDevice);
    if (Operation::wait(next)) return true;
    look_at_device();
    if (next == until) return done();
  }
}

void StreamOperation::on_end(EndFunction function) {
  Operation::on_end(std::move(function));
  if (!done()) ring_at_end();
}

// Ends the call if its own device has failed. The failure of another device is no end of this stream.
void StreamOperation::look_at_device() {
  if (device_has_failed() && driver_.broken(options_.calls->copy_stream(options_.device)) != 0) leave_stream();
}

bool StreamOperation::device_has_failed_meanwhile() {
  if (!interrupted_) interrupted_ = flow->fail_if_interrupted();
  return device_has_failed();
}

bool StreamOperation::device_has_failed() {
  const std::optional<Error> error = options_.calls->broken();
  if (error) options_.give_up(*error);
  return error.has_value();
}

}  // namespace rondo
