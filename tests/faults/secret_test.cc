// Another user is kept out by AUTH_FAILED in time, the others are undisturbed, and the secret is on no wire. Who knows
// another secret, or says again what was said: tests/auth, tests/rendezvous, tests/fabric.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "ring/base/descriptor.h"
#include "tests/faults/copier.h"
#include "tests/faults/ranks.h"
#include "tests/support/secrets.h"
#include "tests/support/sockets.h"

namespace rondo::testing {
namespace {

constexpr const char* kRight = "the right secret: 0123456789abcdef";

std::string at_loopback(uint16_t port) { return fmt::format("tcp://127.0.0.1:{}", port); }

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void join(Here& here) {
  here.say(here.timed([&] {
    Communicator group = Communicator::join(here.options);
    group.barrier();
    if (!group.authenticated()) throw Exception(ErrorCode::kInternal, "not authenticated");
  }));
  here.await();
}

// Listens at `relay`, and copies to the store and back whatever comes. Tells the test, when asked, what it has seen.
int record(uint16_t relay, uint16_t store, Parent& test) {
  std::vector<Descriptor> doors;
  doors.push_back(listen_at(loopback(relay), Listen::kOwnAddress));
  std::string all;
  const auto has = [&](const char* text) { return all.find(text) != std::string::npos; };
  const auto note = [&](const Copier::Flow& flow, size_t at) { all += flow.held.substr(at); };
  Copier copier(
      std::move(doors), [store](int) { return loopback(store); }, note);
  test.say("ready");
  while (true) {
    if (!copier.step(test.descriptor())) continue;
    test.await();
    test.say(fmt::format("{} {} {} {}", all.size() > 500, has("fault test"), has("RONDOCARD"),
                         has(kRight) || has("0123456789abcdef")));
  }
}

}  // namespace

TEST_CASE("fault 58: another user of the machine does not get in through loopback, without any setting") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root can become another user");
    return;
  }
  const std::string url = fmt::format("tcp://127.0.0.1:{}", free_port());
  Job job;
  const auto options_of = [&](int rank) {
    JoinOptions options = job.options(rank, 2);
    options.rendezvous = url;
    options.config.transport = "tcp";
    return options;
  };
  job.ranks.emplace_back(options_of(0), join);
  job.ranks.emplace_back(options_of(1), [](Here& here) {
    if (::setgid(65'534) != 0 || ::setuid(65'534) != 0) return here.say("cannot become another user");
    ::unsetenv("XDG_RUNTIME_DIR");
    join(here);
  });
  const Timed said = timed_line(job[1].hear());
  CAPTURE(said.outcome);
  CHECK(said.begins("AUTH_FAILED ["));
  check_within(58, said.elapsed_ms, 5'000);
  job.ranks.emplace_back(options_of(1), join);
  for (const int i : {0, 2}) CHECK(timed_line(job[i].hear()).outcome == "ok");
}

TEST_CASE("an observer of every byte of a start sees the job's name, and no secret") {
  for (const bool encrypt : {false, true}) {
    CAPTURE(encrypt);
    const TempFolder folder;
    const uint16_t store = free_port(), relay = free_port();
    Config config = fault_config();
    config.secret_file = make_secret(folder, "right", kRight);
    config.transport = "tcp";
    config.encrypt = encrypt;
    Child recorder([&](Parent& test) { return record(relay, store, test); });
    REQUIRE(recorder.hear() == "ready");
    Job job;
    for (const int rank : {0, 1}) {
      JoinOptions options = job.options(rank, 2, config);
      options.rendezvous = at_loopback(rank == 0 ? store : relay);
      job.ranks.emplace_back(options, join);
    }
    for (const int rank : {0, 1}) CHECK(timed_line(job[rank].hear()).outcome == "ok");
    recorder.tell("what was it");
    CHECK(recorder.hear() == (encrypt ? "true true false false" : "true true true false"));
  }
}

}  // namespace rondo::testing
