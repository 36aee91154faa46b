#include "bench/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bench/loop/measure.h"
#include "bench/loop/sizes.h"
#include "bench/loop/tensors.h"

namespace rondo::bench {
namespace {

constexpr const char* placement_name(Placement placement) {
  return placement == Placement::kInPlace ? "in-place" : "out-of-place";
}

// -m N: N operations as one list of equal tensors.
Extent repeated(Extent extent, uint32_t times) {
  extent.bytes *= times;
  extent.count *= times;
  extent.input_elements *= times;
  extent.output_elements *= times;
  return extent;
}

// count: elements of one operation. Several operations in one call are a list of equal tensors.
Exercise exercise_of(const Case& c, Placement placement, int world, const Options& options, uint64_t count) {
  std::vector<uint64_t> parts = tensors_by_name(options.list).value_or(std::vector<uint64_t>{});
  if (options.aggregate > 1) parts.assign(options.aggregate, count);
  return {c.benchmark, placement, c.dtype, c.op, world, std::max(c.root, 0), std::move(parts)};
}

// One pass over the cases. All ranks run it alike: a case that one skipped would leave the others waiting.
class Session {
 public:
  Session(Group& group, const Options& options, const SessionSetup& setup, const SessionEvents& events)
      : group_(group), options_(options), setup_(setup), events_(events), cases_(cases_of(options, group.size())) {}

  std::vector<Row> run() {
    for (size_t i = 0; i < cases_.size(); ++i) {
      measure_case(i);
      if (group_.rank() == 0) report_case(i);
    }
    return std::move(rows_);
  }

 private:
  // Both placements are measured before the line is shown. Collective.
  void measure_case(size_t index) {
    const Case& c = cases_[index];
    const Extent extent = extent_of(c.benchmark, c.size, c.dtype, group_.size());
    for (Placement placement : options_.placements) {
      if (!benchmark_has(c.benchmark, placement)) continue;
      if (group_.rank() == 0 && events_.on_progress) {
        events_.on_progress(fmt::format("{} {} {} (line {} of {})", benchmark_name(c.benchmark),
                                        size_text(extent.bytes), placement_name(placement), index + 1, cases_.size()));
      }
      Measurement measured = measure(group_, exercise_of(c, placement, group_.size(), options_, extent.count),
                                     repeated(extent, options_.aggregate), options_.effort);
      for (double& us : measured.batch_us) us /= options_.aggregate * benchmark_messages(c.benchmark);
      // This time is of the whole operation, in which each rank sends a row's bytes once.
      measured.cpu_us /= options_.aggregate;
      measured_[static_cast<size_t>(placement)] = std::move(measured);
    }
  }

  // Rank 0: of one placement, with times of one operation.
  Row row_of(const Case& c, Placement placement, const Extent& extent, const Measurement& measured) const {
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
    row.calls = options_.blocking ? "blocking" : "async";
    row.list = options_.list.empty() ? "none" : options_.list + (options_.fused ? "-fused" : "");
    const double bus = bus_factor(c.benchmark, world);
    fill_times(row, measured.batch_us, bus);
    fill_cpu(row, measured.cpu_us, bus);
    if (benchmark_loads_ring_evenly(c.benchmark)) {
      const std::optional<StreamLimit> limit = setup_.limits.stream(world, c.size);
      fill_share(row, limit ? std::optional(limit->gbps) : std::nullopt);
    }
    if (options_.effort.check) row.wrong = measured.wrong;
    return row;
  }

  void report_case(size_t index) {
    const Case& c = cases_[index];
    const Extent extent = extent_of(c.benchmark, c.size, c.dtype, group_.size());
    Line line{extent.bytes, {}, {}};
    for (Placement placement : options_.placements) {
      if (!benchmark_has(c.benchmark, placement)) continue;
      const Row row = row_of(c, placement, extent, measured_[static_cast<size_t>(placement)]);
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
  std::array<Measurement, 2> measured_;  // of the case under way, by placement
  std::vector<Row> rows_;
};

}  // namespace

std::vector<Row> run_session(Group& group, const Options& options, const SessionSetup& setup,
                             const SessionEvents& events) {
  return Session(group, options, setup, events).run();
}

}  // namespace rondo::bench
