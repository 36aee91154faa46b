#include "bench/bars.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/sizes.h"
#include "bench/statistics.h"

namespace rondo::bench {
namespace {

constexpr uint64_t kSizes[] = {8, 64u << 10, 1u << 20, 64u << 20};

// Bounds in the order of kSizes; 0: none.
struct Line {
  const char* transport;
  const char* congestion;
  const char* buffers;
  std::vector<int> worlds;
  Against against;
  double bounds[4];
};

void add_line(const Line& line, std::vector<Bar>& bars) {
  for (int world : line.worlds) {
    for (int i = 0; i < 4; ++i) {
      if (line.bounds[i] == 0) continue;
      bars.push_back({line.transport, line.congestion, line.buffers, world, kSizes[i], line.against, Bar::Kind::kAtMost,
                      line.bounds[i]});
    }
  }
}

}  // namespace

const char* against_name(Against against) {
  constexpr const char* kNames[] = {"time / best MPI",      "time / best peer",
                                    "time / Gloo's best",   "CPU s/GB / fastest peer",
                                    "share of raw TCP",     "share of raw TCP through the whole buffer",
                                    "time / bare exchange", "share of one fused pass"};
  return kNames[static_cast<int>(against)];
}

const char* kind_name(Bar::Kind kind) { return kind == Bar::Kind::kAtLeast ? "at least" : "at most"; }

const char* verdict_name(Verdict verdict) {
  constexpr const char* kNames[] = {"HOLDS", "MISSED", "NOT JUDGED"};
  return kNames[static_cast<int>(verdict)];
}

std::vector<Bar> all_bars() {
  std::vector<Bar> bars;
  const Line lines[] = {
      {"shm", "", "plain", {2}, Against::kBestMpi, {0.9, 0.95, 0.9, 0.8}},
      {"shm", "", "plain", {4, 8}, Against::kBestMpi, {0.9, 0.9, 1.0, 0.75}},
      {"shm", "", "registered", {2}, Against::kBestMpi, {0.9, 0.35, 0.35, 0.38}},
      {"shm", "", "registered", {4}, Against::kBestMpi, {0.9, 0.45, 0.35, 0.3}},
      {"tcp", "reno", "plain", {2}, Against::kBestPeer, {0.8, 0.85, 0.95, 0.88}},
      {"tcp", "reno", "plain", {4, 8}, Against::kBestPeer, {0.85, 1.0, 1.0, 0.95}},
      {"tcp", "", "plain", {2}, Against::kGloo, {0.3, 0.75, 1.0, 0.55}},
      {"shm", "", "plain", {2, 4}, Against::kPeerCpu, {0, 1.0, 1.0, 1.0}},
      {"tcp", "reno", "plain", {2, 4}, Against::kPeerCpu, {0, 1.0, 1.0, 1.0}},
      {"tcp", "", "plain", {2}, Against::kExchange, {1.5, 0, 0, 0}},
  };
  for (const Line& line : lines) add_line(line, bars);
  constexpr auto kAtLeast = Bar::Kind::kAtLeast;
  for (Against raw : {Against::kRawWalk, Against::kRawTcp}) {
    bars.push_back({"tcp", "", "plain", 2, 64u << 20, raw, kAtLeast, 0.92});
    bars.push_back({"tcp", "", "plain", 4, 64u << 20, raw, kAtLeast, 0.88});
  }
  bars.push_back({"shm", "", "registered", 2, 64u << 20, Against::kFusedPass, kAtLeast, 0.8});
  return bars;
}

std::string bar_name(const Bar& bar) {
  return fmt::format("{}{} {}, {} ranks, {}, {}", bar.transport, bar.congestion.empty() ? "" : "@" + bar.congestion,
                     bar.buffers, bar.world, size_text(bar.bytes), against_name(bar.against));
}

Verdict judge(const Judged& judged) {
  if (judged.ratios.empty()) return Verdict::kNotJudged;
  const double ratio = median(judged.ratios);
  const bool holds = judged.bar.kind == Bar::Kind::kAtLeast ? ratio >= judged.bar.bound : ratio <= judged.bar.bound;
  return holds ? Verdict::kHolds : Verdict::kMissed;
}

std::string judged_text(const Judged& judged) {
  std::string text = fmt::format("{:<10} {}: ", verdict_name(judge(judged)), bar_name(judged.bar));
  if (judged.ratios.empty()) return text + judged.missing;
  for (double ratio : judged.ratios) text += fmt::format("{:.3f} ", ratio);
  return text +
         fmt::format("median {:.3f}, {} {:.2f}", median(judged.ratios), kind_name(judged.bar.kind), judged.bar.bound);
}

int bars_exit_code(const std::vector<Judged>& all) {
  return std::any_of(all.begin(), all.end(), [](const Judged& j) { return judge(j) == Verdict::kMissed; }) ? 1 : 0;
}

}  // namespace rondo::bench
