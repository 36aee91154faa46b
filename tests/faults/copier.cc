#include "tests/faults/copier.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <utility>

namespace rondo::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostHeldBytes = 64 * 1024;
constexpr int kStepMs = 20;

}  // namespace

Copier::Copier(std::vector<Descriptor> doors, Target target, Seen seen)
    : doors_(std::move(doors)), target_(std::move(target)), seen_(std::move(seen)), refilled_(Clock::now()) {}

bool Copier::step(int other) {
  const bool said = wait(other);
  for (const Descriptor& door : doors_) accept(door);
  refill();
  for (Connection& connection : connections_) {
    copy(connection.there);
    copy(connection.back);
  }
  connections_.remove_if([](const Connection& one) { return one.there.passed() && one.back.passed(); });
  return said;
}

bool Copier::wait(int other) {
  std::vector<pollfd> wishes{{other, POLLIN, 0}};
  for (const Descriptor& door : doors_) wishes.push_back({door.get(), POLLIN, 0});
  for (const Connection& connection : connections_) {
    for (const Flow* flow : {&connection.there, &connection.back}) {
      if (!flow->ended && flow->held.size() < kMostHeldBytes) wishes.push_back({flow->from, POLLIN, 0});
      if (!flow->held.empty() && rate_ == 0) wishes.push_back({flow->to, POLLOUT, 0});
    }
  }
  ::poll(wishes.data(), wishes.size(), kStepMs);
  return wishes[0].revents != 0;
}

void Copier::accept(const Descriptor& door) {
  Descriptor caller(::accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!caller.valid()) return;
  const sockaddr_in target = target_(caller.get());
  Descriptor called(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // The caller's connection ends, as on a host where nothing listens.
  if (::connect(called.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target) != 0) return;
  Flow there, back;
  there.from = back.to = caller.get();
  there.to = back.from = called.get();
  there.by_caller = true;
  connections_.push_back({std::move(caller), std::move(called), std::move(there), std::move(back)});
}

void Copier::refill() {
  const auto now = Clock::now();
  const double bytes = static_cast<double>(rate_) * std::chrono::duration<double>(now - refilled_).count();
  refilled_ = now;
  for (Connection& connection : connections_) {
    for (Flow* flow : {&connection.there, &connection.back}) {
      flow->allowed = std::min(flow->allowed + bytes, static_cast<double>(rate_));
    }
  }
}

void Copier::copy(Flow& flow) {
  read(flow);
  size_t bytes = flow.held.size();
  if (rate_ > 0) bytes = std::min(bytes, static_cast<size_t>(flow.allowed));
  if (bytes > 0) {
    const ssize_t sent = ::send(flow.to, flow.held.data(), bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN) flow.held.clear();  // the other end is gone
    if (sent > 0) flow.held.erase(0, static_cast<size_t>(sent));
    if (sent > 0 && rate_ > 0) flow.allowed -= static_cast<double>(sent);
  }
  if (flow.passed()) ::shutdown(flow.to, SHUT_WR);
}

void Copier::read(Flow& flow) {
  if (flow.ended || flow.held.size() >= kMostHeldBytes) return;
  const size_t held = flow.held.size();
  flow.held.resize(kMostHeldBytes);
  const ssize_t got = ::recv(flow.from, flow.held.data() + held, kMostHeldBytes - held, MSG_DONTWAIT);
  const int reason = errno;
  flow.held.resize(held + static_cast<size_t>(std::max<ssize_t>(0, got)));
  flow.ended = got == 0 || (got < 0 && reason != EAGAIN);
  if (got > 0) seen_(flow, held);
}

Descriptor listen_at(const sockaddr_in& address, Listen how) {
  Descriptor door(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  const bool listens =
      (how == Listen::kOwnAddress || ::setsockopt(door.get(), SOL_IP, IP_TRANSPARENT, &on, sizeof on) == 0) &&
      ::bind(door.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::listen(door.get(), 64) == 0;
  if (!listens) throw std::runtime_error("a relay cannot listen");
  return door;
}

}  // namespace rondo::testing
