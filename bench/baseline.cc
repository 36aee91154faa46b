#include "bench/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "bench/json.h"
#include "bench/sizes.h"
#include "bench/statistics.h"
#include "bench/whole_file.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

constexpr double kLeastNoise = 0.05;

template <typename Ratios>
auto find_ratio(Ratios& ratios, const std::string& what) {
  return std::find_if(ratios.begin(), ratios.end(), [&](const Ratio& ratio) { return ratio.what == what; });
}

Json to_json(const Ratio& ratio) {
  return {{"what", ratio.what}, {"median", ratio.median}, {"low", ratio.low}, {"high", ratio.high}};
}

}  // namespace

Ratio ratio_of(const std::string& what, const std::vector<double>& runs) {
  const Summary summary = summarize(runs);
  return {what, summary.median, summary.min, summary.max};
}

std::vector<Ratio> ratios_of(const std::vector<Contest>& contests) {
  std::vector<Ratio> out;
  for (const Contest& contest : contests) {
    for (uint64_t bytes : contest.sizes()) {
      for (const std::string& library : contest.libraries()) {
        if (library == contest.libraries().front()) continue;
        std::vector<double> runs;
        for (size_t run = 0; run < contest.runs(); ++run) {
          const std::optional<Row> ours = contest.best(run, contest.libraries().front(), bytes);
          const std::optional<Row> theirs = contest.best(run, library, bytes);
          if (ours && theirs) runs.push_back(ours->time_us / theirs->time_us);
        }
        if (runs.empty()) continue;
        out.push_back(ratio_of(fmt::format("{}, {} / {}", contest.question().text(), size_text(bytes), library), runs));
      }
    }
  }
  return out;
}

std::vector<Ratio> read_baseline(const std::string& path) {
  try {
    std::ifstream file(path);
    std::vector<Ratio> ratios;
    const Json json = Json::parse(file);
    for (const Json& entry : json.at("ratios")) {
      ratios.push_back({entry.at("what").get<std::string>(), entry.at("median").get<double>(),
                        entry.at("low").get<double>(), entry.at("high").get<double>()});
    }
    return ratios;
  } catch (const std::exception& error) {
    throw Exception(ErrorCode::kSystem, fmt::format("no ratios of rondo-bench in {}: {}", path, error.what()));
  }
}

void write_baseline(const std::string& path, const std::vector<Ratio>& ratios, const Machine& machine) {
  std::vector<Ratio> all;
  if (std::ifstream(path).good()) all = read_baseline(path);
  for (const Ratio& ratio : ratios) {
    const auto known = find_ratio(all, ratio.what);
    if (known == all.end()) {
      all.push_back(ratio);
    } else {
      *known = ratio;
    }
  }
  Json list = Json::array();
  for (const Ratio& ratio : all) list.push_back(to_json(ratio));
  replace_file(path, Json{{"machine", to_json(machine)}, {"ratios", list}}.dump(1) + "\n");
}

std::vector<BaselineVerdict> compare_with_baseline(const std::vector<Ratio>& now, const std::vector<Ratio>& before) {
  std::vector<BaselineVerdict> out;
  for (const Ratio& ratio : now) {
    const auto known = find_ratio(before, ratio.what);
    if (known == before.end()) continue;
    const double noise = std::max({known->high - known->low, ratio.high - ratio.low, kLeastNoise * known->median});
    const bool fell = ratio.median > known->median + noise;
    out.push_back({fell, fmt::format("{} {}: {:.3f}, was {:.3f}, noise {:.3f}", fell ? "FELL " : "STAYS", ratio.what,
                                     ratio.median, known->median, noise)});
  }
  return out;
}

}  // namespace rondo::bench
