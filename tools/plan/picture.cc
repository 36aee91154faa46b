#include "tools/plan/picture.h"

#include <algorithm>
#include <vector>

namespace rondo {
namespace {

std::string cell(const Plan& plan, const Step& step) {
  std::string sends, stores;
  uint32_t block = 0;
  for (uint32_t i = 0; i < uint32_t{step.sources} + step.targets; ++i) {
    const Ref& ref = plan.refs[step.first + i];
    if (ref.space != Space::kMailbox) block = ref.block % plan.blocks;
    if (i < step.sources) continue;
    if (ref.space == Space::kMailbox) sends += (sends.empty() ? ">" : ",") + std::to_string(ref.peer);
    if (ref.space == Space::kOutput) stores = (step.flags & kFinish) != 0 ? "=" : ".";
  }
  if (step.sources == 0) return "signal" + sends;
  if (step.targets == 0) return "wait";
  return std::string(step.sources > 1 ? "+" : "") + stores + "c" + std::to_string(block) + sends;
}

}  // namespace

std::string picture(std::span<const Plan> plans) {
  std::vector<std::vector<std::string>> columns;
  size_t rows = 0, width = 6;
  for (const Plan& plan : plans) {
    std::vector<std::string> column;
    for (uint32_t s = 0; s < plan.lanes[0].count; ++s) {
      column.push_back(cell(plan, plan.steps[plan.lanes[0].first + s]));
      width = std::max(width, column.back().size());
    }
    rows = std::max(rows, column.size());
    columns.push_back(std::move(column));
  }
  const auto padded = [&](std::string text) {
    text.resize(std::max(width + 2, text.size()), ' ');
    return text;
  };
  std::string text = padded("step");
  for (size_t r = 0; r < plans.size(); ++r) text += padded("rank " + std::to_string(r));
  while (text.back() == ' ') text.pop_back();
  text += "\n";
  for (size_t row = 0; row < rows; ++row) {
    text += padded(std::to_string(row));
    for (const std::vector<std::string>& column : columns) text += padded(row < column.size() ? column[row] : "");
    while (text.back() == ' ') text.pop_back();
    text += "\n";
  }
  return text;
}

}  // namespace rondo
