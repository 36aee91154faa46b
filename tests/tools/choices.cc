#include "tests/tools/choices.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "ring/plan/choose.h"

namespace rondo {
namespace {

constexpr uint64_t kSmallest = 8, kLargest = uint64_t{1} << 30;

constexpr Collective kColumns[] = {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                                   Collective::kBroadcast, Collective::kReduce};

std::string size_text(uint64_t bytes) {
  if (bytes >= 1 << 30) return std::to_string(bytes >> 30) + " GiB";
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + " MiB";
  return bytes >= 1 << 10 ? std::to_string(bytes >> 10) + " KiB" : std::to_string(bytes) + " B";
}

// "direct to 4 KiB, doubling to 64 KiB, ring": an algorithm is named with the last size that it is chosen for.
std::string cell(const Chooser& chooser, Collective collective) {
  std::string text;
  Algorithm now = chooser.choose(collective, kSmallest);
  for (uint64_t bytes = 2 * kSmallest; bytes <= kLargest; bytes *= 2) {
    const Algorithm next = chooser.choose(collective, bytes);
    if (next == now) continue;
    text += std::string(algorithm_name(now)) + " to " + size_text(bytes / 2) + ", ";
    now = next;
  }
  return text + algorithm_name(now);
}

struct Row {
  std::string ranks;
  Topology topology;
};

std::string table(const std::string& title, const std::vector<Row>& rows, const CostModel& model) {
  std::string text = "**" + title + "**\n\n| ranks |", line = "|---|";
  for (Collective collective : kColumns) {
    text += std::string(" ") + collective_name(collective) + " |";
    line += "---|";
  }
  text += "\n" + line + "\n";
  for (const Row& row : rows) {
    const Chooser chooser(row.topology, model);
    text += "| " + row.ranks + " |";
    for (Collective collective : kColumns) text += " " + cell(chooser, collective) + " |";
    text += "\n";
  }
  return text + "\n";
}

// Hosts of these sizes; `islands`: the ranks of each share memory.
Topology hosts(const std::vector<int>& sizes, bool islands) {
  Topology topology;
  for (size_t h = 0; h < sizes.size(); ++h) {
    topology.host.insert(topology.host.end(), static_cast<size_t>(sizes[h]), static_cast<int>(h));
  }
  if (islands) topology.island = topology.host;
  return topology;
}

// One host that has fewer cores than ranks.
std::vector<Row> crowded_worlds() {
  std::vector<Row> rows;
  for (const auto& [world, cores] : {std::pair{3, 2}, {4, 2}, {8, 2}, {8, 4}, {16, 4}}) {
    Topology topology = hosts({world}, false);
    topology.cores.assign(static_cast<size_t>(world), cores);
    rows.push_back({std::to_string(world) + " on " + std::to_string(cores) + " cores", std::move(topology)});
  }
  return rows;
}

std::vector<Row> worlds(bool one_host, bool islands) {
  std::vector<Row> rows;
  for (int world : {2, 3, 4, 6, 8, 16, 32, 64, 128}) {
    const std::vector<int> sizes = one_host ? std::vector<int>{world} : std::vector<int>(static_cast<size_t>(world), 1);
    rows.push_back({std::to_string(world), hosts(sizes, islands)});
  }
  return rows;
}

}  // namespace

std::string choices(const CostModel& model) {
  const std::vector<Row> mixed = {
      {"2 + 3", hosts({2, 3}, true)},           {"4 + 4", hosts({4, 4}, true)},
      {"6 + 6", hosts({6, 6}, true)},           {"8 + 4", hosts({8, 4}, true)},
      {"4 times 8", hosts({8, 8, 8, 8}, true)}, {"16 times 6", hosts(std::vector<int>(16, 6), true)}};
  return table("One host, TCP", worlds(true, false), model) +
         table("One host with fewer cores than ranks, TCP", crowded_worlds(), model) +
         table("One host, shared memory", worlds(true, true), model) +
         table("A rank a host", worlds(false, false), model) +
         table("Several hosts, shared memory inside each", mixed, model);
}

}  // namespace rondo
