#include "transport/rendezvous/roster.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "rondo/error.h"
#include "tests/rendezvous/served.h"
#include "tests/rendezvous/test_jobs.h"
#include "tests/support/child.h"
#include "tests/support/errors.h"
#include "tests/support/rank_group.h"
#include "transport/rendezvous/served_store.h"
#include "transport/store/memory_store.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using test::in_ms;
using test::soon;
using testing::error_of;
using testing::run_in_threads;

const Logger kQuiet("off");

struct Outcome {
  std::vector<std::string> cards;
  Error error;
};

Outcome exchange(Store& store, int rank, int world, const std::string& card, Store::Deadline deadline) {
  Outcome outcome;
  outcome.error = error_of([&] { outcome.cards = exchange_roster(store, rank, world, card, deadline, kQuiet); });
  return outcome;
}

// A card of at least `bytes` bytes.
std::string card_of(int rank, size_t bytes = 0) {
  std::string card = "card of " + std::to_string(rank);
  card.resize(std::max(bytes, card.size()), 'x');
  return card;
}

// One thread a rank on one store.
std::vector<Outcome> exchange_all(Store& store, const std::vector<int>& ranks, int world, int64_t deadline_ms,
                                  size_t card_bytes = 0) {
  std::vector<Outcome> outcomes(ranks.size());
  run_in_threads(static_cast<int>(ranks.size()), [&](int index) {
    const auto i = static_cast<size_t>(index);
    outcomes[i] = exchange(store, ranks[i], world, card_of(ranks[i], card_bytes), in_ms(deadline_ms));
  });
  return outcomes;
}

TEST_CASE("roster: a rank that cannot start says why, and all others fail at once with its words") {
  for (const int world : {1, 2, 5}) {
    for (int decliner = 0; decliner < world; decliner += 2) {
      CAPTURE(world);
      CAPTURE(decliner);
      MemoryStore store;
      std::vector<int> others;
      for (int rank = 0; rank < world; ++rank) {
        if (rank != decliner) others.push_back(rank);
      }
      const auto start = std::chrono::steady_clock::now();
      std::thread declines([&] {
        decline_roster(store, decliner, world, {ErrorCode::kSystem, "no descriptor is left", {}}, kQuiet);
      });
      for (const Outcome& outcome : exchange_all(store, others, world, 20'000)) {
        CHECK(outcome.error.code == ErrorCode::kBootstrap);
        CHECK(outcome.error.ranks == std::vector<int>{decliner});
        CHECK(outcome.error.message.find("rank " + std::to_string(decliner) + " cannot start: host ") == 0);
        CHECK(outcome.error.message.find(": SYSTEM: no descriptor is left") != std::string::npos);
      }
      declines.join();
      CHECK(std::chrono::steady_clock::now() - start < 5s);
    }
  }
}

// Another store as one rank sees it: look(key, waits) runs before it reads a key, and what it throws is the store's.
class Seen : public Store {
 public:
  using Look = std::function<void(std::string_view key, bool waits)>;
  Seen(Store& store, Look look) : store_(store), look_(std::move(look)) {}
  void put(std::string_view k, std::string_view v, Deadline d) override { store_.put(k, v, d); }
  std::string get(std::string_view k, Deadline d) override { return look_(k, true), store_.get(k, d); }
  std::optional<std::string> try_get(std::string_view k, Deadline d) override {
    return look_(k, false), store_.try_get(k, d);
  }
  int64_t add(std::string_view k, int64_t a, Deadline d) override { return store_.add(k, a, d); }
  std::string compare_set(std::string_view k, std::string_view e, std::string_view v, Deadline d) override {
    return store_.compare_set(k, e, v, d);
  }
  bool remove(std::string_view k, Deadline d) override { return store_.remove(k, d); }

 private:
  Store& store_;
  const Look look_;
};

TEST_CASE("roster: where rank 0 and another cannot start, the one that is named is the one whose words are told") {
  MemoryStore store;
  Seen of_rank_0(store, [&](std::string_view key, bool waits) {
    if (!waits && key == "roster/card/2") store.get(key, in_ms(20'000));  // rank 0 looks when it is there
  });
  std::thread zero([&] { decline_roster(of_rank_0, 0, 3, {ErrorCode::kSystem, "no descriptor is left", {}}, kQuiet); });
  std::thread two([&] { decline_roster(store, 2, 3, {ErrorCode::kSystem, "no memory is left", {}}, kQuiet); });
  const Error heard = exchange(store, 1, 3, "card", in_ms(20'000)).error;
  zero.join();
  two.join();
  CHECK(heard.ranks == std::vector<int>{2});
  CHECK(heard.message.find("rank 2 cannot start: host ") == 0);
  CHECK(heard.message.find(": SYSTEM: no memory is left") != std::string::npos);
}

TEST_CASE(
    "roster: a rank that has come, and whose store then fails, says so: the others do not wait for their deadline") {
  for (const int victim : {0, 1}) {
    CAPTURE(victim);
    MemoryStore store;
    Seen broken(store, [](std::string_view key, bool) {
      if (key == "roster/verdict") throw Exception(ErrorCode::kBootstrap, "no answer");
    });
    const auto start = std::chrono::steady_clock::now();
    std::thread fails([&] { exchange(broken, victim, 3, "card", in_ms(5'000)); });  // rank 2 does not come
    const Error heard = exchange(store, 1 - victim, 3, "card", in_ms(5'000)).error;
    fails.join();
    CHECK(std::chrono::steady_clock::now() - start < 4s);
    CHECK(heard.ranks == std::vector<int>{victim});
    CHECK(heard.message.find(fmt::format("rank {} cannot start: host ", victim)) == 0);
    CHECK(heard.message.find("BOOTSTRAP: no answer") != std::string::npos);
  }
}

// Looking for all that are missing whenever one has come took 2,016 requests here, half the square of the world.
TEST_CASE("roster: rank 0 asks for each card once, and for all that are missing twice a second, in whatever order") {
  constexpr int kWorld = 64, kLookMs = 500;
  MemoryStore store;
  std::atomic<int> requests{0};
  Seen of_rank_0(store, [&](std::string_view key, bool waits) {
    ++requests;
    if (waits) store.put(fmt::format("waits for {}", key), "", soon());
  });
  const auto start = std::chrono::steady_clock::now();
  run_in_threads(kWorld, [&](int rank) {
    // The lowest that is missing comes next.
    if (rank > 0) store.get(fmt::format("waits for roster/card/{}", rank), in_ms(20'000));
    exchange(rank == 0 ? static_cast<Store&>(of_rank_0) : store, rank, kWorld, card_of(rank), in_ms(20'000));
  });
  const auto took = std::chrono::steady_clock::now() - start;
  const auto looks = 1 + std::chrono::duration_cast<std::chrono::milliseconds>(took).count() / kLookMs;
  CHECK(requests <= 2 * kWorld + looks * (kWorld + 4));
}

// Rank 0 has looked for all before rank 2 comes, and waits for rank 1, which declines.
TEST_CASE("roster: rank 0 serves until those that have come since its last look know why another cannot start") {
  MemoryStore store;
  Seen of_rank_0(store, [&](std::string_view, bool waits) {
    if (waits) store.put("rank 0 waits", "", soon());
  });
  auto zero = std::async(std::launch::async, [&] { return exchange(of_rank_0, 0, 3, "card", soon()).error; });
  std::atomic<bool> left_alone{false};
  Seen of_rank_2(store, [&](std::string_view key, bool) {  // it has the verdict, and has not acknowledged it
    if (key == "roster/refused") left_alone = zero.wait_for(200ms) == std::future_status::ready;
  });
  store.get("rank 0 waits", soon());
  auto two = std::async(std::launch::async, [&] { return exchange(of_rank_2, 2, 3, "card", soon()).error; });
  store.get("roster/card/2", soon());
  decline_roster(store, 1, 3, {ErrorCode::kSystem, "no descriptor is left", {}}, kQuiet);
  CHECK(two.get().message.find("rank 1 cannot start: ") == 0);
  CHECK_FALSE(left_alone);
  CHECK(zero.get().ranks == std::vector<int>{1});
}

TEST_CASE("roster: why a rank cannot start is known before its end is, whenever rank 0 looks") {
  const test::Served served;
  StreamStore store(served.client());
  auto leaves = std::make_unique<StreamStore>(served.client());
  auto one = std::async(std::launch::async, [&] { exchange_hosts(*leaves, 1, 2, soon(), kQuiet); });
  exchange_hosts(store, 0, 2, soon(), kQuiet);
  one.get();
  Seen of_rank_0(store, [&](std::string_view key, bool waits) {
    if (waits || key != "roster/verdict" || leaves == nullptr) return;
    decline_roster(*leaves, 1, 2, {ErrorCode::kSystem, "no descriptor is left", {}}, kQuiet);
    leaves.reset();
    store.get("roster/verdict", soon());
  });
  const Error heard = exchange(of_rank_0, 0, 2, "card", soon()).error;
  CHECK(heard.code == ErrorCode::kBootstrap);
  CHECK(heard.message.find("rank 1 cannot start: host ") == 0);
}

TEST_CASE("hosts: ranks of this host know that all are on it; a rank that does not come is named") {
  const auto hosts_of = [](int world, const std::vector<int>& ranks, int64_t deadline_ms) {
    MemoryStore store;
    std::vector<std::string> found(ranks.size());
    run_in_threads(static_cast<int>(ranks.size()), [&](int index) {
      const auto i = static_cast<size_t>(index);
      const Error error = error_of([&] {
        for (const int host : exchange_hosts(store, ranks[i], world, in_ms(deadline_ms), kQuiet)) {
          found[i] += std::to_string(host);
        }
      });
      for (const int rank : error.ranks) found[i] += "missing " + std::to_string(rank);
    });
    return found;
  };
  CHECK(hosts_of(1, {0}, 10'000) == std::vector<std::string>{"0"});
  CHECK(hosts_of(3, {0, 1, 2}, 10'000) == std::vector<std::string>(3, "000"));
  CHECK(hosts_of(3, {0, 2}, 300) == std::vector<std::string>(2, "missing 1"));
}

TEST_CASE("roster: every rank gets the card of every rank, also where the table is cut, since no value holds it") {
  for (const int world : {1, 2, 3, 4, 5, 6, 7, 8, 9, 20}) {
    const size_t card_bytes = world == 20 ? 64 * 1024 : 0;
    MemoryStore store;
    std::vector<int> ranks;
    std::vector<std::string> cards;
    for (int r = 0; r < world; ++r) {
      ranks.push_back(r);
      cards.push_back(card_of(r, card_bytes));
    }
    for (const Outcome& outcome : exchange_all(store, ranks, world, 10'000, card_bytes)) {
      CHECK(outcome.error.message == "");
      CHECK(outcome.cards == cards);
    }
  }
}

TEST_CASE("roster: a table that is longer than all cards can be is malformed, and no more of it is fetched") {
  MemoryStore store;
  store.put("roster/world", "2 a host", soon());
  store.put("roster/part/0", std::string(Store::kMaxValueBytes, '\0'), soon());
  store.put("roster/verdict", "complete 2000000000 ", soon());  // the second part is not there
  const Error error = exchange(store, 1, 2, card_of(1), soon()).error;
  CHECK(error.code == ErrorCode::kProtocol);
  CHECK(error.message.find("rank 0's table of ranks is malformed") != std::string::npos);
}

TEST_CASE("fault 37: roster: missing ranks are named at the deadline on every rank that waits") {
  for (std::vector<int> there : {std::vector<int>{0, 1, 4}, {0}, {1, 2, 3, 4}, {3}}) {
    MemoryStore store;
    std::vector<int> missing;
    for (int r = 0; r < 5; ++r) {
      if (std::find(there.begin(), there.end(), r) == there.end()) missing.push_back(r);
    }
    // Without rank 0 nobody keeps the list: the others know of rank 0 only.
    if (there.front() != 0) missing = {0};
    auto start = std::chrono::steady_clock::now();
    for (const Outcome& outcome : exchange_all(store, there, 5, 300)) {
      CHECK(outcome.error.code == ErrorCode::kBootstrap);
      CHECK(outcome.error.ranks == missing);
      CHECK(outcome.error.message.find("have not come: " + std::to_string(missing[0])) != std::string::npos);
    }
    CHECK(std::chrono::steady_clock::now() - start < 5s);
  }
}

TEST_CASE("fault 36: roster: the same rank twice: the second is refused, the first undisturbed") {
  for (int doubled : {0, 1}) {
    MemoryStore store;
    std::vector<Outcome> outcomes(2);
    std::thread first([&] { outcomes[0] = exchange(store, doubled, 2, "first", soon()); });
    if (doubled == 1) store.put("roster/world", "2 here", soon());
    store.get("roster/card/" + std::to_string(doubled), soon());
    Outcome second = exchange(store, doubled, 2, "second", soon());
    CHECK(second.error.code == ErrorCode::kBootstrap);
    CHECK(second.error.message.find("rank " + std::to_string(doubled) + " is already taken by host ") !=
          std::string::npos);
    CHECK(second.error.message.find(" pid " + std::to_string(getpid())) != std::string::npos);
    outcomes[1] = exchange(store, 1 - doubled, 2, "other", soon());
    first.join();
    std::vector<std::string> cards = {"first", "other"};
    if (doubled == 1) std::swap(cards[0], cards[1]);
    CHECK(outcomes[0].cards == cards);
    CHECK(outcomes[1].cards == cards);
  }
}

TEST_CASE(
    "fault 2: roster: a rank that has come and ends before another comes is named within 2 s, wherever it waited") {
  const auto exchange_of = [](bool hosts, Store& store, int rank, Store::Deadline deadline) {
    if (!hosts) return exchange(store, rank, 4, "card", deadline).error;
    return error_of([&] { exchange_hosts(store, rank, 4, deadline, kQuiet); });
  };
  for (const bool hosts : {false, true}) {
    CAPTURE(hosts);
    const test::Served served;
    std::vector<std::future<Error>> waiting;
    for (const int rank : {0, 1}) {
      waiting.push_back(std::async(std::launch::async, [&, rank] {
        StreamStore store(served.client());
        return exchange_of(hosts, store, rank, soon());
      }));
    }
    testing::Child dies([&](testing::Parent&) {
      StreamStore store(served.client());
      exchange_of(hosts, store, 2, soon());
      return 0;
    });
    StreamStore looks(served.client());
    looks.get(hosts ? "hosts/card/2" : "roster/card/2", soon());
    ::kill(dies.pid(), SIGKILL);
    const auto died = std::chrono::steady_clock::now();
    for (std::future<Error>& one : waiting) {
      const Error error = one.get();
      CHECK(error.code == ErrorCode::kPeerLost);
      CHECK(error.ranks == std::vector<int>{2});
      CHECK(error.message.find("rank 2 was lost while the group was starting: host ") == 0);
      CHECK(error.message.find(fmt::format("pid {}: its process ended", dies.pid())) != std::string::npos);
    }
    CHECK(std::chrono::steady_clock::now() - died < 2s);
    // Between the two exchanges a rank has words in neither.
    CHECK(looks.try_get("roster/verdict", soon()).has_value());
  }
}

TEST_CASE("fault 36: roster: a second rank 0 is told which process has its rank, and so are those that wait") {
  const test::Folder folder;
  const std::string port = std::make_unique<test::Served>()->address().text();
  for (const std::string& rendezvous : {port, "unix://" + folder.path("store"), "file://" + folder.path("file")}) {
    CAPTURE(rendezvous);
    auto first = open_store(test::launch(0, 2, rendezvous), Config{}, soon());
    auto waits = std::async(std::launch::async, [&] { return exchange(*first, 0, 2, "card", in_ms(2'000)).error; });
    StreamStore looks(client_options(parse_rendezvous(rendezvous), test::launch(1, 2, rendezvous), Config{}));
    looks.get("roster/card/0", soon());
    const Error second = error_of([&] { open_store(test::launch(0, 2, rendezvous), Config{}, in_ms(300)); });
    CHECK(second.code == ErrorCode::kBootstrap);
    CHECK(second.message.find("rank 0 is already taken by host ") == 0);
    CHECK(waits.get().message.find("a second rank 0, host ") != std::string::npos);
  }
}

TEST_CASE("roster: the end of a process that was refused ends no start") {
  const test::Served served;
  StreamStore zero(served.client()), one(served.client());
  auto first = std::async(std::launch::async, [&] { return exchange(zero, 0, 2, "a", soon()); });
  {
    StreamStore refused(served.client());
    CHECK(exchange(refused, 1, 3, "wrong", soon()).error.code == ErrorCode::kBootstrap);
  }
  {
    StreamStore refused(served.client());
    CHECK(exchange(refused, 0, 2, "second", soon()).error.code == ErrorCode::kBootstrap);
  }
  CHECK(exchange(one, 1, 2, "b", soon()).cards.size() == 2);
  CHECK(first.get().cards.size() == 2);
}

TEST_CASE("fault 38: roster: another world size is refused with both numbers, and the right process still gets in") {
  MemoryStore store;
  std::vector<Outcome> outcomes(2);
  std::thread zero([&] { outcomes[0] = exchange(store, 0, 2, "a", soon()); });
  for (int world : {3, 7}) {
    Outcome wrong = exchange(store, 1, world, "wrong", soon());
    CHECK(wrong.error.code == ErrorCode::kBootstrap);
    CHECK(wrong.error.message.find("has " + std::to_string(world) + " ranks") != std::string::npos);
    CHECK(wrong.error.message.find("says 2") != std::string::npos);
  }
  Outcome beyond = exchange(store, 5, 6, "wrong", soon());
  CHECK(beyond.error.code == ErrorCode::kBootstrap);
  outcomes[1] = exchange(store, 1, 2, "b", soon());
  zero.join();
  for (const Outcome& outcome : outcomes) CHECK(outcome.cards == std::vector<std::string>{"a", "b"});
}

TEST_CASE("fault 38: roster: who was refused, and why, stands in the error of those that have waited for it in vain") {
  MemoryStore store;
  std::vector<Outcome> outcomes(2);
  std::vector<std::thread> waiting;
  for (const int rank : {0, 1}) {
    waiting.emplace_back([&, rank] { outcomes[rank] = exchange(store, rank, 3, "a", in_ms(1'500)); });
  }
  const Outcome refused = exchange(store, 2, 4, "wrong", soon());
  CHECK(refused.error.code == ErrorCode::kBootstrap);
  for (std::thread& thread : waiting) thread.join();
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.error.ranks == std::vector<int>{2});
    CAPTURE(outcome.error.message);
    CHECK(outcome.error.message.find("pid " + std::to_string(getpid()) +
                                     ", was refused: it says that the world has 4 ranks, not 3") != std::string::npos);
  }
}

TEST_CASE("roster: goodbye waits for the last rank, and gives up when one never leaves") {
  MemoryStore store;
  std::thread one([&] { roster_goodbye(store, 2, soon()); });
  roster_goodbye(store, 2, soon());
  one.join();
  CHECK(store.try_get(kRosterEndKey, soon()));

  MemoryStore alone;
  auto start = std::chrono::steady_clock::now();
  roster_goodbye(alone, 2, in_ms(100));
  auto took = std::chrono::steady_clock::now() - start;
  CHECK(took >= 100ms);
  CHECK(took < 2s);
}

TEST_CASE("roster: joining again at once after a goodbye never meets the old store") {
  test::Folder folder;
  for (std::string kind : {"unix", "file"}) {
    CAPTURE(kind);
    std::string rendezvous = kind + "://" + folder.path("again-" + kind);
    run_in_threads(3, [&](int rank) {
      for (int round = 0; round < 30; ++round) {
        const auto store = open_store(test::launch(rank, 3, rendezvous), Config{}, soon());
        const std::vector<std::string> wanted{fmt::format("0/{}", round), fmt::format("1/{}", round),
                                              fmt::format("2/{}", round)};
        const auto cards = exchange_roster(*store, rank, 3, fmt::format("{}/{}", rank, round), soon(), kQuiet);
        testing::expect(cards == wanted, "an old card");
        roster_goodbye(*store, 3, soon());
      }
    });
  }
}

TEST_CASE("place: what the launcher did not say follows from the hosts") {
  std::vector<int> host = {0, 1, 0, 1, 1};
  Place place = complete_place({3, 5, -1, -1, -1, -1}, host);
  CHECK(place.local_rank == 1);
  CHECK(place.local_world == 3);
  CHECK(place.node == 1);
  CHECK(place.nodes == 2);
  place = complete_place({3, 5, 7, 9, 4, 6}, host);
  CHECK(place.local_rank == 7);
  CHECK(place.nodes == 6);
}

}  // namespace
}  // namespace rondo
