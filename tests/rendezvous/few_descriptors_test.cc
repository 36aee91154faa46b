// Proves: with 64 descriptors and a flood of strangers the store serves its clients, and the process can still open
// files of its own.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "tests/rendezvous/served.h"
#include "tests/support/child.h"
#include "transport/tcp/descriptor_reserve.h"

namespace rondo {
namespace {

using test::check_serving;
using test::Served;
using test::soon;

void lower_limit(rlim_t limit) {
  rlimit both{limit, limit};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &both) == 0);
}

TEST_CASE("ulimit -n 64: a flood of silent connections takes a quarter of the descriptors, and no client's place") {
  // The flood's own ends are in another process.
  testing::Child flood([](testing::Parent& test) {
    const SocketAddress address = resolve("127.0.0.1", static_cast<uint16_t>(std::stoi(test.await()))).front();
    std::vector<Descriptor> silent;
    for (int i = 0; i < 300; ++i) silent.push_back(connect_socket(address, soon()));
    test.say("done");
    test.await();  // until the test ends
    return 0;
  });
  lower_limit(64);
  const Served served(60'000);
  flood.tell(std::to_string(served.address().port()));
  REQUIRE(flood.hear() == "done");
  for (int i = 0; i < 5; ++i) check_serving(served);
  CHECK(free_descriptors() >= 16);
  const Descriptor file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  CHECK(file.valid());
}

TEST_CASE("no descriptor left: who waits at the listener is turned away, and the reserve is there again") {
  SocketAddress bound;
  const Descriptor listener = listen_socket(resolve("127.0.0.1", 0).front(), &bound);
  DescriptorReserve reserve;
  const Descriptor client = connect_socket(bound, soon());
  std::vector<Descriptor> all;
  while (true) {
    Descriptor file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!file.valid()) break;
    all.push_back(std::move(file));
    REQUIRE(all.size() < 100'000);
  }
  CHECK(reserve.turn_away(listener.get()));
  CHECK_FALSE(reserve.turn_away(listener.get()));        // nobody waits any more
  CHECK(::open("/dev/null", O_RDONLY | O_CLOEXEC) < 0);  // the place is taken again
  char byte;
  CHECK(wait_ready(client.get(), POLLIN, soon()));
  CHECK(::recv(client.get(), &byte, 1, 0) <= 0);
}

}  // namespace
}  // namespace rondo
