#include "bench/session.h"

#include <fmt/format.h>

#include <array>

#include "bench/measure.h"
#include "bench/sizes.h"
#include "bench/tensors.h"

namespace rondo::bench {
namespace {

constexpr const char* placement_name(Placement placement) {
  return placement == Placement::kInPlace ? "in-place" : "out-of-place";
}

// All passes of one case in one placement.
struct Samples {
  std::vector<double> batch_us;
  uint64_t wrong = 0;
  double cpu_us = 0;  // of one operation, all passes together
};

Exercise exercise_of(const Case& c, Placement placement, int world, const std::string& list) {
  return {c.benchmark,
          placement,
          c.dtype,
          c.op,
          world,
          c.root < 0 ? 0 : c.root,
          tensors_by_name(list).value_or(std::vector<uint64_t>{})};
}

class Session {
 public:
  Session(Group& group, const Options& options, const SessionSetup& setup, const SessionEvents& events)
      : group_(group), options_(options), setup_(setup), events_(events), cases_(cases_of(options, group.size())) {
    samples_.resize(cases_.size());
  }

  std::vector<Row> run() {
    for (uint32_t pass = 0; pass < options_.repeat; ++pass) {
      for (size_t i = 0; i < cases_.size(); ++i) {
        measure_case(i, pass);
        if (group_.rank() == 0 && pass + 1 == options_.repeat) report_case(i);
      }
    }
    return std::move(rows_);
  }

 private:
  void measure_case(size_t index, uint32_t pass) {
    const Case& c = cases_[index];
    const Extent extent = extent_of(c.benchmark, c.size, c.dtype, group_.size());
    for (Placement placement : options_.placements) {
      if (!benchmark_has(c.benchmark, placement)) continue;
      if (group_.rank() == 0 && events_.on_progress) {
        events_.on_progress(fmt::format("{} {} {} (line {} of {}, pass {} of {})", benchmark_name(c.benchmark),
                                        size_text(extent.bytes), placement_name(placement), index + 1, cases_.size(),
                                        pass + 1, options_.repeat));
      }
      const Measurement measured =
          measure(group_, exercise_of(c, placement, group_.size(), options_.list), extent, options_.effort);
      Samples& samples = samples_[index][static_cast<size_t>(placement)];
      samples.batch_us.insert(samples.batch_us.end(), measured.batch_us.begin(), measured.batch_us.end());
      samples.wrong += measured.wrong;
      samples.cpu_us += measured.cpu_us;
    }
  }

  Row row_of(const Case& c, Placement placement, const Extent& extent, const Samples& samples) const {
    const int world = group_.size();
    Row row;
    row.collective = benchmark_name(c.benchmark);
    row.transport = setup_.transport;
    row.algorithm =
        group_.algorithm({c.benchmark, nullptr, nullptr, extent.count, c.dtype, c.op, c.root < 0 ? 0 : c.root});
    row.dtype = dtype_name(c.dtype);
    row.op = benchmark_reduces(c.benchmark) ? op_name(c.op) : "none";
    row.world = world;
    row.bytes = extent.bytes;
    row.in_place = placement == Placement::kInPlace;
    row.buffers = buffer_kind_name(options_.buffers);
    row.list = options_.list.empty() ? "none" : options_.list + (options_.fused ? "-fused" : "");
    const double bus = bus_factor(c.benchmark, world);
    fill_times(row, samples.batch_us, bus);
    fill_cpu(row, samples.cpu_us / options_.repeat, bus);
    if (benchmark_loads_ring_evenly(c.benchmark)) {
      const std::optional<StreamLimit> limit = setup_.limits.stream(world, c.size);
      fill_share(row, limit ? std::optional(limit->gbps) : std::nullopt);
    }
    if (options_.effort.check) row.wrong = samples.wrong;
    return row;
  }

  void report_case(size_t index) {
    const Case& c = cases_[index];
    const Extent extent = extent_of(c.benchmark, c.size, c.dtype, group_.size());
    Line line{extent.bytes,
              extent.count,
              dtype_name(c.dtype),
              benchmark_reduces(c.benchmark) ? op_name(c.op) : "none",
              c.root,
              {},
              {}};
    for (Placement placement : options_.placements) {
      if (!benchmark_has(c.benchmark, placement)) continue;
      const Row row = row_of(c, placement, extent, samples_[index][static_cast<size_t>(placement)]);
      rows_.push_back(row);
      (row.in_place ? line.in_place : line.out_of_place) = row;
    }
    if (events_.on_line) events_.on_line(c, line);
  }

  Group& group_;
  const Options& options_;
  const SessionSetup& setup_;
  const SessionEvents& events_;
  std::vector<Case> cases_;
  std::vector<std::array<Samples, 2>> samples_;
  std::vector<Row> rows_;
};

}  // namespace

std::vector<Row> run_session(Group& group, const Options& options, const SessionSetup& setup,
                             const SessionEvents& events) {
  return Session(group, options, setup, events).run();
}

}  // namespace rondo::bench
