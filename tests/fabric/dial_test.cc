// A peer at whose endpoints nothing listens is found out as soon as the patience with it ends, whatever the deadline.
// One that ends the connection lives.
#include <doctest/doctest.h>

#include <array>
#include <asio/buffer.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <optional>

#include "transport/hello/dial.h"

namespace rondo::testing {
namespace {

using Clock = std::chrono::steady_clock;

TEST_CASE("nothing listens: PEER_LOST after 0.8 s, also where a later attempt would come behind the deadline") {
  asio::io_context io;
  // A port that is bound, so that nobody else listens there, and does not listen.
  asio::ip::tcp::acceptor bound(io);
  bound.open(asio::ip::tcp::v4());
  bound.bind({asio::ip::address_v4::loopback(), 0});
  DialOrder order;
  order.peer = "rank 1";
  order.endpoints = {{"127.0.0.1", bound.local_endpoint().port()}};
  const auto begin = Clock::now();
  order.deadline = begin + std::chrono::milliseconds(1'100);
  std::optional<DialResult> result;
  const Dial dial(io, order, [&](DialResult ended) { result.emplace(std::move(ended)); });
  io.run();
  REQUIRE(result);
  CHECK(result->error.code == ErrorCode::kPeerLost);
  CHECK(Clock::now() - begin >= std::chrono::milliseconds(800));
}

TEST_CASE("a peer that closes the connection is no silent one, whatever another connection has met before") {
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  asio::ip::tcp::socket accepted(io);
  asio::steady_timer later(io);
  std::array<char, kHelloBytes> hello;
  DialOrder order;
  order.peer = "rank 1";
  order.endpoints = {{"127.0.0.1", acceptor.local_endpoint().port()}};
  order.hello = Hello{};
  order.tuning.silence_ms = 100;
  acceptor.async_accept(accepted, [&](asio::error_code) {
    asio::async_read(accepted, asio::buffer(hello), [&](asio::error_code, size_t) {
      later.expires_after(std::chrono::milliseconds(2 * order.tuning.silence_ms));
      later.async_wait([&](asio::error_code) { accepted.close(); });
    });
  });
  order.deadline = Clock::now() + std::chrono::milliseconds(1'000);
  std::optional<DialResult> result;
  const Dial dial(io, order, [&](DialResult ended) { result.emplace(std::move(ended)); });
  while (!result) {
    errno = ETIMEDOUT;
    io.run_one();
  }
  CHECK(result->error.code == ErrorCode::kTimeout);  // not UNRESPONSIVE: it was tried until the deadline
}

}  // namespace
}  // namespace rondo::testing
