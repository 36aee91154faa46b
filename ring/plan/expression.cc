#include "ring/plan/expression.h"

#include <utility>

#include "ring/base/hash.h"

namespace rondo {

namespace {
// Characters. A fold of 64 ranks would fill a screen, and the beginning shows what is wrong.
constexpr size_t kTextLimit = 200;
}  // namespace

// The number of an equal node, or a new one.
Value Expressions::intern(Node node) {
  Hash64 hash;
  hash.add(static_cast<uint64_t>(node.rank)).add(node.block).add(node.finish).add(static_cast<uint64_t>(node.code));
  for (const Operand& o : node.operands) hash.add(o.value).add(static_cast<uint64_t>(o.scaled_by));
  const auto [first, last] = by_hash_.equal_range(hash.value());
  for (auto it = first; it != last; ++it) {
    if (nodes_[it->second] == node) return it->second;
  }
  const Value value = static_cast<Value>(nodes_.size());
  nodes_.push_back(std::move(node));
  by_hash_.emplace(hash.value(), value);
  return value;
}

Value Expressions::leaf(int rank, uint32_t block) { return intern({rank, block, false, Code::kNone, {}}); }

Value Expressions::fold(std::span<const Operand> operands, bool finish) {
  if (operands.size() == 1 && operands[0].scaled_by == kUnscaled && !finish) return operands[0].value;
  return intern({-1, 0, finish, Code::kNone, {operands.begin(), operands.end()}});
}

void Expressions::append(Value v, std::string& text) const {
  if (text.size() > kTextLimit) return;
  const Node& node = nodes_[v];
  if (node.operands.empty()) {
    text += "r" + std::to_string(node.rank) + "[" + std::to_string(node.block) + "]";
    return;
  }
  constexpr const char *kOpen[] = {"(", "<", "[", "{"}, *kClose[] = {")", ">", "]", "}"};  // by Code
  const auto code = static_cast<size_t>(node.code);
  text += node.finish ? "finish(" : kOpen[code];
  for (size_t i = 0; i < node.operands.size(); ++i) {
    if (i > 0) text += " + ";
    append(node.operands[i].value, text);
    if (node.operands[i].scaled_by != kUnscaled) text += "*";
  }
  text += kClose[code];
}

std::string Expressions::text(Value v) const {
  if (v == kNoValue) return "nothing";
  std::string text;
  append(v, text);
  if (text.size() > kTextLimit) text = text.substr(0, kTextLimit) + "...";
  return text;
}

}  // namespace rondo
