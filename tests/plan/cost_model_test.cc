#include "ring/plan/cost_model.h"

#include <doctest/doctest.h>

#include "rondo/error.h"
#include "tests/plan/plans.h"

namespace rondo {
namespace {

std::string refusal(const std::string& text) {
  try {
    CostModel::parse(text);
  } catch (const Exception& e) {
    CHECK_EQ(e.code(), ErrorCode::kInvalid);
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a cost model is read back as it was written, bit for bit, and hashes alike") {
  CostModel model;
  model.memory = {0.1, 1.0 / 7, 1e-300};
  model.loopback = {2.0 / 3, 1.0 / 3999.5, 0};
  model.network.alpha_us = 1e6;
  model.gamma_us_per_byte = 1.0 / 3e5;
  const CostModel again = CostModel::parse(model.describe());
  CHECK(again == model);
  CHECK_EQ(again.hash(), model.hash());
  CHECK_NE(model.hash(), CostModel{}.hash());
  CHECK(CostModel::parse("") == CostModel{});
}

TEST_CASE("every field of a cost model can be set, and changes the hash") {
  const std::string defaults = CostModel{}.describe();
  int fields = 0;
  for (size_t at = 0; at < defaults.size(); at = defaults.find('\n', at) + 1, ++fields) {
    const std::string name = defaults.substr(at, defaults.find('=', at) - at);
    const CostModel changed = CostModel::parse("# measured\n\n" + name + "=0.125  # here\r\n");
    CHECK_NE(changed.describe().find(name + "=0.125\n"), std::string::npos);
    CHECK_NE(changed.hash(), CostModel{}.hash());
  }
  CHECK_EQ(fields, 12);
}

TEST_CASE("what is no cost model is refused, with the line") {
  CHECK_EQ(refusal("gamma=1"), "cost model: \"gamma=1\": there is no such field");
  CHECK_EQ(refusal("gamma_us_per_byte"), "cost model: \"gamma_us_per_byte\": there is no such field");
  CHECK_EQ(refusal("memory.alpha_us=1\nloopback.alpha_us="), "cost model: \"loopback.alpha_us=\": it wants a number");
  CHECK_EQ(refusal("loopback.alpha_us=5us"), "cost model: \"loopback.alpha_us=5us\": it wants a number");
  CHECK_EQ(refusal("loopback.alpha_us=-1"), "cost model: \"loopback.alpha_us=-1\": it must be 0 .. 1e+06");
  CHECK_NE(refusal("gamma_us_per_byte=nan"), "");
  CHECK_NE(refusal("gamma_us_per_byte=inf"), "");
}

TEST_CASE("pairs: shared memory inside an island, loopback inside a host, the network between hosts") {
  Topology topology = hosts_of({4, 2});
  topology.island = {0, 0, -1, -1, 1, 1};
  CHECK_EQ(pair_kind(topology, 0, 1), PairKind::kMemory);
  CHECK_EQ(pair_kind(topology, 1, 2), PairKind::kLoopback);
  CHECK_EQ(pair_kind(topology, 2, 3), PairKind::kLoopback);
  CHECK_EQ(pair_kind(topology, 3, 4), PairKind::kNetwork);
  CHECK_EQ(pair_kind(topology, 5, 4), PairKind::kMemory);
}

}  // namespace rondo
