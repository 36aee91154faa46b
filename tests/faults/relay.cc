#include "tests/faults/relay.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <utility>

#include "tests/faults/copier.h"

namespace rondo::testing {
namespace {

constexpr size_t kDataBytes = 16 * 1024;  // a control message is smaller

std::vector<Descriptor> doors_at(const std::vector<uint16_t>& ports) {
  std::vector<Descriptor> doors;
  for (const uint16_t port : ports) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    doors.push_back(listen_at(address, Listen::kTransparent));
  }
  return doors;
}

// The other host, which the caller's packets were addressed to.
sockaddr_in meant_by(int caller) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ::getsockname(caller, reinterpret_cast<sockaddr*>(&address), &size);
  return address;
}

[[noreturn]] void run(const std::vector<uint16_t>& ports, Parent& test) {
  std::optional<std::string> flip;
  Copier copier(doors_at(ports), meant_by, [&](Copier::Flow& flow, size_t at) {
    const size_t bytes = flow.held.size() - at;
    if (!flip || bytes < kDataBytes) return;
    const size_t found = flow.held.find(*flip, at + bytes / 2);
    if (found == std::string::npos || found + 1 >= flow.held.size()) return;
    flip.reset();
    char& byte = flow.held[found + 1];
    byte = static_cast<char>(byte ^ 0x10);
    test.say("flipped");
  });
  test.say("ready");
  while (true) {
    if (!copier.step(test.descriptor())) continue;
    const std::string order = test.await();  // ends the process where the test has ended
    if (order.rfind("flip", 0) == 0) {
      flip = order.substr(4);
    } else {
      copier.limit_rate(std::stoull(order));
      test.say("limited");
    }
  }
}

}  // namespace

Relay::Relay(const Hosts& hosts, int through, std::vector<uint16_t> ports)
    : process_([&hosts, through, ports = std::move(ports)](Parent& test) -> int {
        hosts.enter(through);
        run(ports, test);
      }) {
  REQUIRE(process_.hear() == "ready");
}

void Relay::flip_a_bit(const std::string& mark) {
  process_.tell("flip" + mark);
  REQUIRE(process_.hear() == "flipped");
}

void Relay::limit_rate(size_t bytes_per_second) {
  process_.tell(fmt::format("{}", bytes_per_second));
  REQUIRE(process_.hear() == "limited");
}

}  // namespace rondo::testing
