// Links over shared memory keep the contract of links, and refuse by name what is wrong in their memory. Any rubbish in
// it: tests/fuzz/mailbox.cc.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/engine/arguments.h"
#include "tests/support/link_contract.h"
#include "transport/island/memory_file.h"
#include "transport/island/shared_link_body.h"

namespace rondo::testing {
namespace {

using Ring = CellRing<LinkCells, CellOrders>;

ChannelEnd end_over(std::shared_ptr<Mapping> memory, bool lower) {
  std::byte* data = memory->data();
  return {std::move(memory),
          data,
          lower,
          std::make_shared<Bell>(),
          std::make_shared<PeerLife>(),
          lower ? "second peer" : "first peer"};
}

// Two processes' ends: each has its own mapping of one file.
LinkEnds two_mappings(const LinkShape& shape, uint64_t) {
  const size_t bytes = shared_link_bytes(shape);
  const Descriptor file = make_memory_file(bytes, Pages::kSparse);
  LinkEnds ends;
  for (const bool lower : {true, false}) {
    auto memory = std::make_shared<Mapping>(file.get(), bytes, Mapping::Touch::kLater);
    ends.side[lower ? 0 : 1] = make_shared_link(end_over(std::move(memory), lower), shape);
  }
  return ends;
}

LinkEnds one_mapping(const LinkShape& shape, uint64_t) {
  const size_t bytes = shared_link_bytes(shape);
  const Descriptor file = make_memory_file(bytes, Pages::kSparse);
  auto memory = std::make_shared<Mapping>(file.get(), bytes, Mapping::Touch::kLater);
  LinkEnds ends;
  for (const bool lower : {true, false}) ends.side[lower ? 0 : 1] = make_shared_link(end_over(memory, lower), shape);
  return ends;
}

// One end, and the memory as its peer may write it.
struct Victim {
  LinkShape shape{4, 2000};
  LinkCells cells{shape.depth, shape.slice_bytes};
  ChannelLayout<LinkCells> layout{cells};
  std::shared_ptr<Mapping> memory;
  std::unique_ptr<Link> link;
  std::vector<std::byte> landing = std::vector<std::byte>(2000, std::byte{0xee});

  Victim() {
    const Descriptor file = make_memory_file(layout.bytes, Pages::kSparse);
    memory = std::make_shared<Mapping>(file.get(), layout.bytes, Mapping::Touch::kLater);
    link = make_shared_link(end_over(memory, true), shape);
  }
  Ring to_victim() { return ring(false); }
  Ring from_victim() { return ring(true); }
  bool untouched() const { return std::count(landing.begin(), landing.end(), std::byte{0xee}) == 2000; }
  void show(uint64_t flag, uint64_t sequence, uint64_t fingerprint) {
    to_victim().tag(1) = {sequence, fingerprint};
    to_victim().flag(1).store(flag);
  }

 private:
  Ring ring(bool first) { return {memory->data() + layout.begin(first), cells, layout.begin(first)}; }
};

}  // namespace

TEST_CASE("the contract, over two mappings of one file") {
  const auto [first, seeds] = seed_range(60);
  check_link_contract(two_mappings, first, seeds);
}

TEST_CASE("both ends by threads of their own, over one mapping and over two") {
  const auto [first, seeds] = seed_range(15);
  check_link_between_threads(one_mapping, first, seeds);
  check_link_between_threads(two_mappings, first, seeds);
}

TEST_CASE("a flag, length or tag that is wrong is refused by name, and nothing lands") {
  struct Wrong {
    const char* what;
    uint64_t flag, sequence, fingerprint;
    ErrorCode code;
  };
  const std::vector<Wrong> wrongs{
      {"the number of a later slice", cell_flag(2, 1000), 5, 6, ErrorCode::kProtocol},
      {"a number far ahead", cell_flag(0x80000000u, 1000), 5, 6, ErrorCode::kProtocol},
      {"all ones", ~uint64_t{0}, 5, 6, ErrorCode::kProtocol},
      {"longer than a slice", cell_flag(1, 2001), 5, 6, ErrorCode::kProtocol},
      {"2^32-1 bytes", cell_flag(1, ~uint32_t{0}), 5, 6, ErrorCode::kProtocol},
      {"shorter", cell_flag(1, 999), 5, 6, ErrorCode::kMismatch},
      {"longer", cell_flag(1, 1001), 5, 6, ErrorCode::kMismatch},
      {"sequence", cell_flag(1, 1000), 4, 6, ErrorCode::kMismatch},
      {"fingerprint", cell_flag(1, 1000), 5, 7, ErrorCode::kMismatch},
  };
  for (const Wrong& wrong : wrongs) {
    const std::string what = wrong.what;
    CAPTURE(what);
    Victim victim;
    victim.link->post({5, 6, 1000}, victim.landing.data());
    victim.show(wrong.flag, wrong.sequence, wrong.fingerprint);
    for (int i = 0; i < 10; ++i) victim.link->pump();
    REQUIRE(victim.link->error() != nullptr);
    CHECK(victim.link->error()->code == wrong.code);
    CHECK(victim.link->error()->message.find("second peer") != std::string::npos);
    CHECK(victim.link->arrived() == nullptr);
    CHECK(victim.untouched());
  }
}

TEST_CASE("fault 55: a counter of freed slots that goes back, or beyond what was sent, is corrupt and gives no room") {
  const std::vector<std::byte> payload(100);
  for (const uint64_t freed : {uint64_t{1}, uint64_t{4}, uint64_t{1} << 32, ~uint64_t{0}}) {
    CAPTURE(freed);
    Victim victim;
    for (int i = 0; i < 3; ++i) victim.link->send({5, 6, 100}, payload.data());
    victim.from_victim().taken().store(2);
    CHECK(victim.link->pump());
    victim.from_victim().taken().store(freed);
    victim.link->pump();
    REQUIRE(victim.link->error() != nullptr);
    CHECK(victim.link->error()->code == ErrorCode::kProtocol);
    CHECK(victim.link->error()->message.find("memory shared with second peer is corrupt") != std::string::npos);
    for (int i = 0; i < 3; ++i) {  // three of four slots are free by the last honest word
      REQUIRE(victim.link->can_send());
      victim.link->send({5, 6, 100}, payload.data());
    }
    CHECK_FALSE(victim.link->can_send());
  }
}

}  // namespace rondo::testing
