#include "transport/rendezvous/pmi.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "rondo/error.h"
#include "tests/rendezvous/fake_pmi.h"
#include "tests/rendezvous/test_jobs.h"
#include "tests/support/errors.h"
#include "tests/support/rank_group.h"

namespace rondo {
namespace {

using test::in_ms;
using test::soon;
using testing::error_of;

TEST_CASE("pmi: ranks introduce themselves, put, meet at the barrier and get each other's bytes") {
  constexpr int kSize = 4;
  for (size_t value_limit : {64, 1024}) {
    FakePmi server(kSize, value_limit);
    server.serve();
    std::string long_value(300, '\x01');
    std::vector<std::string> got(kSize);
    testing::run_in_threads(kSize, [&](int r) {
      PmiClient pmi(server.fd(r));
      pmi.init(soon());
      pmi.init(soon());
      got[r] = pmi.name_space();
      for (int meeting = 0; meeting < 3; ++meeting) {
        std::string key = "k" + std::to_string(pmi.next_meeting()) + "r";
        pmi.put(key + std::to_string(r), "a b=c\n" + std::to_string(r) + long_value, soon());
        pmi.barrier(soon());
        got[r] += pmi.get(key + std::to_string((r + 1) % kSize), soon());
      }
    });
    for (int r = 0; r < kSize; ++r) {
      std::string one = "a b=c\n" + std::to_string((r + 1) % kSize) + long_value;
      CHECK(got[r] == "kvs_1_2_host" + one + one + one);
    }
    CHECK(server.finalized() == kSize);  // without it a launcher takes the exit for a crash
  }
}

TEST_CASE("pmi: refusals, silence and the end of the server are errors with the server's own words") {
  FakePmi server(2);
  server.serve();
  {
    PmiClient pmi(server.fd(0));
    pmi.init(soon());
    const Error absent = error_of([&] { pmi.get("absent", soon()); });
    CHECK(absent.code == ErrorCode::kBootstrap);
    CHECK(absent.message.find("key_not_found") != std::string::npos);
    pmi.put("k", "v", soon());
    CHECK_THROWS_AS(pmi.put("k", "v", soon()), Exception);
    CHECK(pmi.get("k", soon()) == "v");
    CHECK_THROWS_AS(pmi.put("big", std::string(64 * 1024, 'x'), soon()), Exception);
    CHECK(error_of([&] { pmi.barrier(in_ms(50)); }).code == ErrorCode::kTimeout);  // the other never comes
    CHECK_THROWS_AS(pmi.get("k", soon()), Exception);  // the late answer would be taken for this one's
  }
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  ::close(ends[1]);
  PmiClient gone(ends[0]);
  CHECK_THROWS_AS(gone.init(soon()), Exception);
  ::close(ends[0]);
}

}  // namespace
}  // namespace rondo
