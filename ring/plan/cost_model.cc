#include "ring/plan/cost_model.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "ring/base/hash.h"
#include "rondo/error.h"

namespace rondo {
namespace {

struct Field {
  std::string name;
  double CostModel::*plain = nullptr;  // or:
  PairCost CostModel::*pair = nullptr;
  double PairCost::*part = nullptr;
  double most = 0;

  template <typename M>
  auto& in(M& model) const {
    return pair != nullptr ? model.*pair.*part : model.*plain;
  }
};

std::vector<Field> fields() {
  const struct {
    const char* name;
    PairCost CostModel::*pair;
  } kinds[kPairKinds] = {
      {"memory", &CostModel::memory}, {"loopback", &CostModel::loopback}, {"network", &CostModel::network}};
  std::vector<Field> list;
  for (const auto& kind : kinds) {
    const std::string prefix = std::string(kind.name) + ".";
    list.push_back({prefix + "alpha_us", nullptr, kind.pair, &PairCost::alpha_us, 1e6});
    list.push_back({prefix + "beta_us_per_byte", nullptr, kind.pair, &PairCost::beta_us_per_byte, 1});
    list.push_back({prefix + "message_us", nullptr, kind.pair, &PairCost::message_us, 1e6});
  }
  list.push_back({"gamma_us_per_byte", &CostModel::gamma_us_per_byte, nullptr, nullptr, 1});
  list.push_back({"crowded_factor", &CostModel::crowded_factor, nullptr, nullptr, 1e3});
  list.push_back({"crowded_halving_factor", &CostModel::crowded_halving_factor, nullptr, nullptr, 1e3});
  return list;
}

// The shortest text that reads back as the same number.
std::string text_of(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return std::string(text, end);
}

void read_line(std::string_view line, const std::vector<Field>& known, CostModel& model) {
  const auto refuse = [&](const std::string& why) {
    throw Exception(ErrorCode::kInvalid, "cost model: \"" + std::string(line) + "\": " + why);
  };
  const size_t equals = line.find('=');
  const auto field =
      std::find_if(known.begin(), known.end(), [&](const Field& f) { return f.name == line.substr(0, equals); });
  if (equals == std::string_view::npos || field == known.end()) refuse("there is no such field");
  const std::string_view text = line.substr(equals + 1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) refuse("it wants a number");
  if (!(value >= 0 && value <= field->most)) refuse("it must be 0 .. " + text_of(field->most));
  field->in(model) = value;
}

}  // namespace

PairKind pair_kind(const Topology& topology, int a, int b) {
  if (topology.share_memory(a, b)) return PairKind::kMemory;
  const bool one_host = topology.host[static_cast<size_t>(a)] == topology.host[static_cast<size_t>(b)];
  return one_host ? PairKind::kLoopback : PairKind::kNetwork;
}

PairCost dearer(const PairCost& a, const PairCost& b) {
  return {std::max(a.alpha_us, b.alpha_us), std::max(a.beta_us_per_byte, b.beta_us_per_byte),
          std::max(a.message_us, b.message_us)};
}

std::string CostModel::describe() const {
  std::string text;
  for (const Field& field : fields()) text += field.name + "=" + text_of(field.in(*this)) + "\n";
  return text;
}

CostModel CostModel::parse(std::string_view text) {
  const std::vector<Field> known = fields();
  CostModel model;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
    if (!line.empty()) read_line(line, known, model);
  }
  return model;
}

uint64_t CostModel::hash() const { return Hash64().add(std::string_view(describe())).value(); }

}  // namespace rondo
