// Whom a rank answers at its local socket, and what the two find out about each other.
#include "transport/island/reachability_probe.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/fabric/cluster.h"
#include "tests/support/child.h"
#include "transport/island/island_socket.h"
#include "transport/island/memory_file.h"

namespace rondo::testing {
namespace {

ProbeOrder order_for(int rank, const std::vector<std::unique_ptr<ProbeListener>>& listeners, int ms) {
  ProbeOrder order;
  order.rank = rank;
  order.world = static_cast<int>(listeners.size());
  order.session = 77;
  order.deadline = in(ms);
  order.patience = std::chrono::milliseconds(ms);
  order.gone = [](int) { return false; };
  for (int peer = 0; peer < order.world; ++peer) {
    if (peer != rank) order.peers.push_back({peer, ::getpid(), "", listeners[static_cast<size_t>(peer)]->name()});
  }
  return order;
}

std::vector<std::unique_ptr<ProbeListener>> listeners_for(int world) {
  std::vector<std::unique_ptr<ProbeListener>> listeners;
  for (int rank = 0; rank < world; ++rank) {
    listeners.push_back(std::make_unique<ProbeListener>(world));
    REQUIRE(listeners.back()->why() == "");
  }
  return listeners;
}

TEST_CASE("ranks that can share memory find it out pair by pair, and keep no descriptor of it") {
  const auto listeners = listeners_for(5);
  const size_t descriptors = open_descriptors();
  std::vector<std::vector<ProbeResult>> results(5);
  in_parallel(5, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    results[r] = probe_peers(*listeners[r], order_for(rank, listeners, 10'000));
  });
  for (int rank = 0; rank < 5; ++rank) {
    const auto& mine = results[static_cast<size_t>(rank)];
    REQUIRE(mine.size() == 4);
    for (const ProbeResult& result : mine) {
      CHECK(result.why_not == "");
      CHECK(result.pulls);
    }
  }
  CHECK(open_descriptors() == descriptors);
}

TEST_CASE("a rank that has nobody to try needs no time") {
  const auto listeners = listeners_for(1);
  CHECK(probe_peers(*listeners[0], order_for(0, listeners, 60'000)).empty());
}

TEST_CASE(
    "processes of one user in the same namespaces are of one class, those of another user or namespace of others") {
  // Proves: needs root, to become another user.
  REQUIRE(::geteuid() == 0);
  const auto class_after = [](const std::function<bool()>& change) {
    Child child([&](Parent& test) {
      test.say(std::to_string(change() ? process_class() : 0));
      return 0;
    });
    return child.hear();
  };
  const std::string own = std::to_string(process_class());
  CHECK(own != "0");
  CHECK(class_after([] { return true; }) == own);
  for (const auto& change : {+[] { return ::setuid(65534) == 0; }, +[] { return ::unshare(CLONE_NEWIPC) == 0; },
                             +[] { return ::unshare(CLONE_NEWNS) == 0; }}) {
    const std::string other = class_after(change);
    CHECK(other != own);
    CHECK(other != "");
  }
}

TEST_CASE(
    "a rank that does not come is given up at the deadline, one that is gone at once, and the others still meet") {
  const auto listeners = listeners_for(4);
  std::vector<std::vector<ProbeResult>> results(4);
  in_parallel(2, [&](int rank) {  // 2 never comes; 3 has died
    const auto r = static_cast<size_t>(rank);
    ProbeOrder order = order_for(rank, listeners, 700);
    order.gone = [](int peer) { return peer == 3; };
    results[r] = probe_peers(*listeners[r], order);
  });
  for (int rank = 0; rank < 2; ++rank) {
    const auto& mine = results[static_cast<size_t>(rank)];
    REQUIRE(mine.size() == 3);
    CHECK(mine[0].why_not == "");
    CHECK(mine[1].why_not == "it did not answer the probe of shared memory in time");
    CHECK(mine[2].why_not == "that rank has gone");
  }
}

TEST_CASE("a rank without a local socket shares with nobody, and nobody waits for it") {
  auto listeners = listeners_for(2);
  ProbeOrder order = order_for(0, listeners, 60'000);
  order.peers[0].listener.clear();
  const auto begin = Clock::now();
  const auto results = probe_peers(*listeners[0], order);
  CHECK(results[0].why_not == "that rank cannot share memory");
  CHECK(Clock::now() - begin < std::chrono::seconds(5));
}

TEST_CASE("a process with another pid than the card says, or of another start, is refused") {
  for (const bool wrong_pid : {true, false}) {
    CAPTURE(wrong_pid);
    const auto listeners = listeners_for(2);
    std::vector<std::vector<ProbeResult>> results(2);
    in_parallel(2, [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      ProbeOrder order = order_for(rank, listeners, 700);
      if (wrong_pid && rank == 0) order.peers[0].pid = 1;
      if (!wrong_pid && rank == 1) order.session = 78;
      results[r] = probe_peers(*listeners[r], order);
    });
    CHECK(results[0][0].why_not != "");
    CHECK(results[1][0].why_not != "");
  }
}

// How a process of the user nobody fares; 0: it was shut out.
int visit_as_nobody(const std::string& listener) {
  if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 9;
  int error = 0;
  const Descriptor socket = connect_abstract(listener, error);
  if (!socket.valid()) return 0;
  const std::string greeting(48, 'R');
  std::string why;
  send_message(socket.get(), greeting.data(), greeting.size(), {}, why);
  pollfd wish{socket.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&wish, 1, 5'000) == 1 && ::recv(socket.get(), &byte, 1, 0) <= 0 ? 0 : 1;
}

TEST_CASE("fault 58: another user's process is shut out, and disturbs nobody (needs root)") {
  REQUIRE(::geteuid() == 0);
  const auto listeners = listeners_for(2);
  Child stranger([&](Parent&) { return visit_as_nobody(listeners[0]->name()); });
  std::vector<std::vector<ProbeResult>> results(2);
  std::vector<std::thread> threads;
  threads.emplace_back([&] { results[0] = probe_peers(*listeners[0], order_for(0, listeners, 10'000)); });
  CHECK(stranger.wait() == 0);  // before rank 1 comes
  threads.emplace_back([&] { results[1] = probe_peers(*listeners[1], order_for(1, listeners, 10'000)); });
  for (std::thread& thread : threads) thread.join();
  CHECK(results[0][0].why_not == "");
  CHECK(results[1][0].why_not == "");
}

TEST_CASE("connections of this user that say nothing or rubbish do not keep the ranks from meeting") {
  const auto listeners = listeners_for(2);
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 12; ++i) {
    int error = 0;
    strangers.push_back(connect_abstract(listeners[0]->name(), error));
    REQUIRE(strangers.back().valid());
    std::string why;
    const std::string rubbish(static_cast<size_t>(i) * 5 + 1, '\xff');
    if (i % 2 == 0) send_message(strangers.back().get(), rubbish.data(), rubbish.size(), {}, why);
  }
  std::vector<std::vector<ProbeResult>> results(2);
  in_parallel(2, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    results[r] = probe_peers(*listeners[r], order_for(rank, listeners, 10'000));
  });
  CHECK(results[0][0].why_not == "");
  CHECK(results[1][0].why_not == "");
}

// The messages of the probe as they lie in memory (reachability_probe.cc): a stranger need not know our headers to send
// them.
constexpr uint64_t kMagic = 0x54454d4f444e4f52;  // "RONDOMET"
constexpr uint64_t kNonce = 0x1234567890abcdef;
constexpr int kHostile = 2;  // of three: it connects to both others
constexpr size_t kTrialBytes = 4 * sizeof(uint64_t);

struct Greeting {
  uint64_t magic = kMagic;
  uint64_t session = 77;
  int32_t from = kHostile;
  int32_t to = -1;
  uint64_t nonce = kNonce;
  uint64_t address = 0;
  uint64_t bytes = kTrialBytes;
};

struct Finding {
  uint64_t magic = kMagic;
  uint32_t mapped = 1;
  uint32_t pulled = 1;
};

// What the third rank does at the place of another; each part as an honest rank would, unless changed.
struct Visit {
  const char* what;
  const char* why_not;  // what the others find
  std::function<void(Greeting&)> change_greeting = [](Greeting&) {};
  std::function<Descriptor()> trial = [] { return make_memory_file(kTrialBytes, Pages::kReserved); };
  size_t files = 1;  // the trial memory so often
  uint64_t nonce_in_memory = kNonce;
  bool answers = true;
  std::function<void(Finding&)> change_finding = [](Finding&) {};
  size_t finding_bytes = sizeof(Finding);  // 0: it leaves instead
};

// Writes the answer into the memory that came with the host's greeting.
void answer(int socket, uint64_t own_nonce) {
  Greeting theirs;
  std::vector<Descriptor> files;
  std::string why;
  Received received = Received::kNothing;
  eventually(
      [&] { return (received = receive_message(socket, &theirs, sizeof theirs, files, why)) != Received::kNothing; });
  if (received != Received::kYes || files.size() != 1) return;
  const Mapping memory(files[0].get(), kTrialBytes, Mapping::Touch::kNow);
  reinterpret_cast<volatile uint64_t*>(memory.data())[1 + kHostile] = theirs.nonce ^ own_nonce;
}

// The connection, to be kept until the others have met.
Descriptor pay(const Visit& visit, const ProbeListener& listener, int host) {
  int error = 0;
  Descriptor socket = connect_abstract(listener.name(), error);
  Greeting greeting;
  greeting.to = host;
  visit.change_greeting(greeting);
  const Descriptor trial = visit.trial();
  *reinterpret_cast<uint64_t*>(Mapping(trial.get(), kTrialBytes, Mapping::Touch::kNow).data()) = visit.nonce_in_memory;
  std::string why;
  send_message(socket.get(), &greeting, sizeof greeting, std::vector<int>(visit.files, trial.get()), why);
  if (visit.answers) answer(socket.get(), greeting.nonce);
  Finding finding[2];
  if (visit.finding_bytes == 0) {
    std::vector<Descriptor> files;  // what was not read would make the end a reset
    eventually([&] { return receive_message(socket.get(), finding, sizeof finding[0], files, why) == Received::kYes; });
    return Descriptor();
  }
  visit.change_finding(finding[0]);
  send_message(socket.get(), finding, visit.finding_bytes, {}, why);
  return socket;
}

std::vector<Visit> hostile_visits() {
  constexpr const char* kGreeting = "it did not greet as a rank of this start does";
  constexpr const char* kMemory = "memory cannot be shared with it";
  const auto unsealed = [] {
    Descriptor file(::memfd_create("trial", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    CHECK(::ftruncate(file.get(), static_cast<off_t>(whole_pages(kTrialBytes))) == 0);
    return file;
  };
  std::vector<Visit> visits(15);
  size_t i = 0;
  visits[i++] = {"honest", ""};
  visits[i++] = {"another program", kGreeting, [](Greeting& g) { g.magic = 1; }};
  visits[i++] = {"another start", kGreeting, [](Greeting& g) { g.session = 78; }};
  visits[i++] = {"for another rank", kGreeting, [](Greeting& g) { g.to = kHostile; }};
  visits[i] = {"no memory", kGreeting};
  visits[i++].files = 0;
  visits[i] = {"two memories", kGreeting};
  visits[i++].files = 2;
  visits[i] = {"memory that is not sealed", kMemory};
  visits[i++].trial = unsealed;
  visits[i] = {"memory of another size", kMemory};
  visits[i++].trial = [] { return make_memory_file(8'192, Pages::kReserved); };
  visits[i++] = {"another size announced", kMemory, [](Greeting& g) { g.bytes = UINT64_MAX; }};
  visits[i] = {"another nonce in the memory", kMemory};
  visits[i++].nonce_in_memory = 1;
  visits[i] = {"no answer in our memory", "its writing in shared memory does not show"};
  visits[i++].answers = false;
  visits[i] = {"it says that it could not map", kMemory};
  visits[i++].change_finding = [](Finding& f) { f.mapped = 0; };
  visits[i] = {"another program's finding", "it did not answer as a rank of this start does"};
  visits[i++].change_finding = [](Finding& f) { f.magic = 1; };
  visits[i] = {"a finding that is too long", "it sent a message of another length"};
  visits[i++].finding_bytes = sizeof(Finding) + 1;
  visits[i] = {"it leaves before its finding", "the connection was closed"};
  visits[i++].finding_bytes = 0;
  return visits;
}

TEST_CASE(
    "a rank that does not keep to the probe's protocol is shut out for a reason; the others meet, nothing leaks") {
  for (const Visit& visit : hostile_visits()) {
    const std::string what = visit.what;
    CAPTURE(what);
    const size_t descriptors = open_descriptors();
    {
      const auto listeners = listeners_for(3);
      std::vector<std::vector<ProbeResult>> results(2);
      std::vector<Descriptor> kept(2);
      in_parallel(4, [&](int index) {
        const auto i = static_cast<size_t>(index % 2);
        if (index < 2) {
          results[i] = probe_peers(*listeners[i], order_for(index, listeners, 10'000));
        } else {
          kept[i] = pay(visit, *listeners[i], index % 2);
        }
      });
      for (const auto& result : results) {
        REQUIRE(result.size() == 2);
        CHECK(result[0].why_not == "");
        CHECK(result[1].why_not == visit.why_not);
      }
    }
    CHECK(open_descriptors() == descriptors);
  }
}

TEST_CASE("a process that names itself a rank and is not that rank's process is not taken for it") {
  // Proves: the process id is the kernel's word; the rank itself can still come.
  const auto listeners = listeners_for(3);
  std::vector<std::vector<ProbeResult>> results(2);
  std::vector<Descriptor> kept(2);
  Visit visit{"honest, but for its process id", ""};
  visit.answers = false;
  in_parallel(4, [&](int index) {
    const auto i = static_cast<size_t>(index % 2);
    if (index >= 2) {
      kept[i] = pay(visit, *listeners[i], index % 2);
      return;
    }
    ProbeOrder order = order_for(index, listeners, 700);
    order.peers[1].pid = 1;
    results[i] = probe_peers(*listeners[i], order);
  });
  for (const auto& result : results) {
    CHECK(result[0].why_not == "");
    CHECK(result[1].why_not == "it did not answer the probe of shared memory in time");
  }
}

TEST_CASE("a memory file is sealed: nobody can change its size, and what is not sealed is refused") {
  const Descriptor file = make_memory_file(10'000, Pages::kReserved);
  CHECK(::ftruncate(file.get(), 0) != 0);
  CHECK(::ftruncate(file.get(), 1 << 20) != 0);
  CHECK(check_memory_file(file.get(), 10'000) == "");
  CHECK(check_memory_file(file.get(), 20'000) != "");
  FILE* plain = std::tmpfile();
  REQUIRE(plain != nullptr);
  REQUIRE(::ftruncate(::fileno(plain), 12'288) == 0);
  CHECK(check_memory_file(::fileno(plain), 10'000) != "");
  std::fclose(plain);
}

}  // namespace
}  // namespace rondo::testing
