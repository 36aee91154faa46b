// Cost models (RONDO_COST_MODEL): refused as kInvalid, or read; what is read is the same when it is written again.
#include "ring/plan/cost_model.h"

#include "rondo/error.h"
#include "tests/fuzz/target.h"

namespace rondo::fuzz {

std::vector<std::string> seeds() {
  return {CostModel{}.describe(), "# measured\nmemory.alpha_us=0.25\r\n\ngamma_us_per_byte=1e-4 # of a fold\n",
          "network.beta_us_per_byte=0\nloopback.message_us=1e6"};
}

void try_input(std::string_view input) {
  try {
    const CostModel model = CostModel::parse(input);
    const CostModel again = CostModel::parse(model.describe());
    RONDO_CHECK(again == model && again.hash() == model.hash(), "a model survives being written");
  } catch (const Exception& refusal) {
    RONDO_CHECK(refusal.code() == ErrorCode::kInvalid, "a model that is wrong is INVALID");
  }
}

}  // namespace rondo::fuzz
