#include "bench/limit/raw_pump.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bench/limit/processes.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

constexpr double kSeconds = 10;  // far more than any batch takes

// EINTR, too: the next pass tries again.
bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

void RawDeadline::look() {
  if (end_ == 0) end_ = raw_seconds() + kSeconds;
  if (raw_seconds() > end_) throw Exception(ErrorCode::kSystem, "raw TCP measurement: nothing moves");
}

RawPump::RawPump(std::vector<RawFlow> flows, const RawSetting& setting, Idle idle)
    : flows_(std::move(flows)), setting_(setting), idle_(idle) {
  for (const RawFlow& flow : flows_) {
    const bool sends = flow.direction == RawFlow::Direction::kSend;
    waits_.push_back({flow.fd, static_cast<short>(sends ? POLLOUT : POLLIN), 0});
  }
}

// The memory of a flow's transfer under way.
std::byte* RawPump::place(const RawFlow& flow) const {
  const uint64_t transfer = flow.moved / setting_.transfer_bytes;
  const uint64_t blocks = flow.share_bytes / setting_.transfer_bytes;
  const bool sends = flow.direction == RawFlow::Direction::kSend;
  if (setting_.memory == Memory::kWalk) {
    return flow.share + (transfer + (sends ? 0 : blocks / 2)) % blocks * setting_.transfer_bytes;
  }
  const bool outward = transfer % 2 == 0;  // the buffer's own bytes go out; others come into the room
  const uint64_t pair = transfer / 2;
  if (outward == sends) return flow.share + pair % blocks * setting_.transfer_bytes;
  return flow.room;
}

// At most to the end of the transfer under way.
bool RawPump::advance(RawFlow& flow) {
  const uint64_t offset = flow.moved % setting_.transfer_bytes;
  std::byte* const memory = place(flow) + offset;
  const uint64_t left = setting_.transfer_bytes - offset;
  const ssize_t moved = flow.direction == RawFlow::Direction::kSend ? send(flow.fd, memory, left, MSG_NOSIGNAL)
                                                                    : recv(flow.fd, memory, left, 0);
  if (moved == 0 || (moved < 0 && !would_block())) {
    throw Exception(ErrorCode::kSystem,
                    fmt::format("raw TCP measurement: a connection broke: {}", std::strerror(errno)));
  }
  if (moved > 0) flow.moved += static_cast<uint64_t>(moved);
  return moved > 0;
}

uint64_t RawPump::slowest() const {
  uint64_t moved = UINT64_MAX;
  for (const RawFlow& flow : flows_) moved = std::min(moved, flow.moved);
  return moved;
}

// One system call for each flow. In lock step no flow passes the slowest by more than one transfer.
bool RawPump::pass() {
  const bool in_step = setting_.driving == Driving::kLockStep;
  const uint64_t next = (slowest() / setting_.transfer_bytes + 1) * setting_.transfer_bytes;
  const uint64_t bound = in_step ? std::min(target_, next) : target_;
  bool moved = false;
  for (RawFlow& flow : flows_) {
    if (flow.moved < bound) moved |= advance(flow);
  }
  return moved;
}

// poll() sleeps 1 ms at most, so that run() comes to its look at the clock. Flows that are done are left out (fd -1).
void RawPump::rest() {
  if (setting_.driving != Driving::kLockStep) {
    for (size_t i = 0; i < flows_.size(); ++i) waits_[i].fd = flows_[i].moved < target_ ? flows_[i].fd : -1;
    poll(waits_.data(), waits_.size(), 1);
  } else if (idle_ == Idle::kYield) {
    sched_yield();
  }
}

void RawPump::run(uint64_t bytes) {
  target_ += bytes;
  RawDeadline deadline;
  while (slowest() < target_) {
    if (pass()) {
      deadline.moved();
      continue;
    }
    rest();
    deadline.passed_in_vain();
  }
}

}  // namespace rondo::bench
