// A peer at whose endpoints nothing listens is found out as soon as the patience with it ends, whatever the deadline.
#include <doctest/doctest.h>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
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

}  // namespace
}  // namespace rondo::testing
