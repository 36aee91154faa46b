#include "transport/rendezvous/address.h"
#include "transport/tcp/listener.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <unistd.h>

#include <string>

#include "ring/base/host_name.h"
#include "rondo/error.h"
#include "tests/rendezvous/test_jobs.h"
#include "tests/support/child.h"
#include "tests/support/errors.h"

namespace rondo {
namespace {

TEST_CASE("addresses: on one host loopback serves, and needs no secret") {
  CHECK(listen_addresses(test::launch(0, 2, "tcp://127.0.0.1:5"), Config{}) == std::vector<std::string>{"127.0.0.1"});
  CHECK(listen_addresses(test::launch(0, 2, "unix:///x"), Config{}) == std::vector<std::string>{"127.0.0.1"});
  Config config;
  config.socket_interface = "lo";
  CHECK(listen_addresses(test::launch(0, 2, "file:///x"), config).front() == "127.0.0.1");
}

TEST_CASE("addresses: a name that matches no interface lists those that there are") {
  Config config;
  config.socket_interface = "nosuch,other";
  const Error error = testing::error_of([&] { listen_addresses(test::launch(0, 2, "tcp://127.0.0.1:5"), config); });
  CHECK(error.code == ErrorCode::kBootstrap);
  CHECK(error.message.find("RONDO_SOCKET_IFNAME=\"nosuch,other\"") != std::string::npos);
  CHECK(error.message.find("lo 127.0.0.1") != std::string::npos);
}

TEST_CASE("ports: a number, a range, any; the rest is refused by the variable's name") {
  Config config;
  auto range = [&](const char* text) {
    config.data_ports = text;
    PortRange found = data_port_range(config);
    return std::pair<int, int>(found.first, found.last);
  };
  CHECK(range("0") == std::pair(0, 0));
  CHECK(range("5000") == std::pair(5000, 5000));
  CHECK(range("5000-5099") == std::pair(5000, 5099));
  for (const char* bad : {"", "-", "a", "2-1", "0-5", "1-65536", "1-2-3"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(range(bad), Exception);
  }
}

TEST_CASE("host: the identity is the same for a process and its child, and the name is not empty") {
  std::string identity = host_identity();
  CHECK(identity.size() > 36);
  CHECK(host_name() != "");
  testing::Child child([&](testing::Parent&) { return host_identity() == identity ? 0 : 1; });
  CHECK(child.wait() == 0);
}

TEST_CASE("a user is known by the id outside of its user namespace") {
  const std::string host = "         0          0 4294967295\n";
  const std::string rootless = "         0       1000          1\n         1     100000      65536\n";
  CHECK(outside_id(host, 0) == 0);
  CHECK(outside_id(host, 1000) == 1000);
  CHECK(outside_id(rootless, 0) == 1000);
  CHECK(outside_id(rootless, 33) == 100032);
  CHECK(outside_id(rootless, 65536) == 165535);
  CHECK(outside_id(rootless, 65537) == 65537);  // of nobody's
  CHECK(outside_id("", 7) == 7);
}

}  // namespace
}  // namespace rondo
