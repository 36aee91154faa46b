#include "ring/engine/plans.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <utility>

namespace rondo {
namespace {

// From here on registered buffers gain more over links than a meeting costs. Time registered to over links, of
// all_gather, reduce_scatter, all_to_all, gather, scatter and reduce by 2 and 4 ranks (AMD EPYC, 2 cores, medians of 5,
// 2026-11-23): 256 KiB 0.3 to 1.07, 1 MiB 0.4 to 1.0, 16 MiB 0.5 to 1.0; 64 KiB is about the same. Plain buffers took
// 1.0 to 1.4 times as long when every call asked (256 KiB, 1 MiB); see Windows::known_plain().
constexpr uint64_t kMeetBytes = 256 * 1024;

bool scales_at_source(const CheckedCall& call) {
  return collective_reduces(call.collective) && call.op == Op::kPremulSum;
}

// Calls that no plan over these windows can run.
bool no_windows_for(const CheckedCall& call, Algorithm algorithm) {
  if (!in_island(algorithm)) return false;
  const bool raw = algorithm == Algorithm::kPull || algorithm == Algorithm::kRegistered;
  return call.uneven || (raw && scales_at_source(call));
}

}  // namespace

Plans::Plans(int rank, Topology topology, const Config& config)
    : rank_(rank),
      topology_(std::move(topology)),
      configured_(config.algorithm),
      lanes_(static_cast<int>(config.lanes)),
      ahead_(static_cast<int>(config.slices_per_chunk)),
      chooser_(topology_, CostModel::parse(config.cost_model), ahead_),
      log_(config.debug, rank) {}

Algorithm Plans::choose(const CheckedCall& call, Algorithm asked) const {
  if (asked != Algorithm::kAuto) {
    if (!plan_available(call.collective, asked, topology_)) {
      throw Exception(ErrorCode::kInvalid,
                      fmt::format("{} on rank {}: there is no {} algorithm for it in a group of {}",
                                  collective_name(call.collective), rank_, algorithm_name(asked), topology_.world()));
    }
    check_windows(call, asked);
    return asked;
  }
  if (configured_ != Algorithm::kAuto && plan_available(call.collective, configured_, topology_) &&
      !no_windows_for(call, configured_)) {
    return configured_;
  }
  return chooser_.choose(call.collective, call.total_bytes(topology_.world()), scales_at_source(call), !call.uneven);
}

Algorithm Plans::choose_registered(const CheckedCall& call, Algorithm asked) const {
  const Algorithm chosen = choose(call, asked);
  const bool settled = chosen != Algorithm::kWindow && !asks_for_registered(call, asked, chosen);
  return settled || scales_at_source(call) ? chosen : Algorithm::kRegistered;
}

// Whether a call that goes over links is to ask first whether it must.
bool Plans::asks_for_registered(const CheckedCall& call, Algorithm asked, Algorithm chosen) const {
  return asked == Algorithm::kAuto && configured_ == Algorithm::kAuto && !in_island(chosen) &&
         call.total_bytes(topology_.world()) >= kMeetBytes && !no_windows_for(call, Algorithm::kRegistered) &&
         plan_available(call.collective, Algorithm::kRegistered, topology_);
}

Algorithm Plans::settle(const CheckedCall& call, Algorithm asked) {
  const Question question{call.collective, asked, scales_at_source(call), call.uneven,
                          call.total_bytes(topology_.world())};
  if (answer_ != Algorithm::kAuto && question == question_) return answer_;
  answer_ = choose(call, asked);
  question_ = question;
  if (log_.shows(LogLevel::kInfo)) show(call, question.bytes, answer_);
  return answer_;
}

void Plans::show(const CheckedCall& call, uint64_t bytes, Algorithm algorithm) {
  const auto size = static_cast<size_t>(std::bit_width(bytes));
  Algorithm& shown = shown_[static_cast<size_t>(call.collective)][size];
  if (shown == algorithm) return;
  shown = algorithm;
  const double us = chooser_.estimated_us(call.collective, algorithm, bytes, scales_at_source(call));
  const std::string cost = std::isinf(us) ? "" : fmt::format(", {:.0f} us by the cost model", us);
  log_.info(fmt::format("{} of {} bytes among {} ranks: {}{}", collective_name(call.collective), bytes,
                        topology_.world(), algorithm_name(algorithm), cost));
}

void Plans::check_windows(const CheckedCall& call, Algorithm asked) const {
  if (!no_windows_for(call, asked)) return;
  throw Exception(ErrorCode::kInvalid,
                  fmt::format("{} on rank {}: the algorithm {} {}", describe_call(call), rank_, algorithm_name(asked),
                              call.uneven ? "takes equal counts only"
                                          : "reads contributions where they lie, so no rank can scale its own"));
}

std::shared_ptr<const Plan> Plans::build(const CheckedCall& call, Algorithm algorithm) const {
  PlanRequest request;
  request.collective = call.collective;
  request.algorithm = algorithm;
  request.rank = rank_;
  request.root = call.root;
  request.lanes = lanes_;
  request.ahead = ahead_;
  request.topology = topology_;
  request.scale_at_source = scales_at_source(call);
  return std::make_shared<const Plan>(build_plan(request));
}

Plans::Set Plans::build_set(const CheckedCall& call, Algorithm algorithm, bool meets) const {
  Set set;
  if (!over_windows(algorithm)) {
    (meets ? set.links : set.plan) = build(call, algorithm);
    if (meets) set.registered = build(call, Algorithm::kRegistered);
    return set;
  }
  set.staged = build(call, Algorithm::kStaged);
  if (algorithm == Algorithm::kWindow && plan_available(call.collective, Algorithm::kOneShot, topology_))
    set.one_shot = build(call, Algorithm::kOneShot);
  if (scales_at_source(call)) return set;
  set.pull = build(call, Algorithm::kPull);
  set.registered = build(call, Algorithm::kRegistered);
  return set;
}

const Plans::Set& Plans::get(const CheckedCall& call, Algorithm asked, Algorithm algorithm) {
  const bool meets = asks_for_registered(call, asked, algorithm);
  const Key key{call.collective, algorithm, call.root, scales_at_source(call), meets};
  if (last_ != nullptr && key == last_key_) return *last_;
  auto found = plans_.find(key);
  if (found == plans_.end()) found = plans_.emplace(key, build_set(call, algorithm, meets)).first;
  last_key_ = key;
  last_ = &found->second;
  return *last_;
}

}  // namespace rondo
