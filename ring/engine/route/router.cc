#include "ring/engine/route/router.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <utility>

#include "kernels/machine.h"
#include "kernels/wire_codec.h"
#include "ring/plan/build.h"
#include "ring/plan/fold_class.h"
#include "ring/plan/layout.h"
#include "rondo/error.h"

namespace rondo {
namespace {

// From here on registered buffers gain more over links than an exchange of cards costs (docs/tuning.md, "When
// registration is asked for").
constexpr uint64_t kAskBytes = 256 * 1024;

// Calls that no plan over these windows can run.
bool no_windows_for(const PreparedCall& call, Algorithm algorithm) {
  if (!in_island(algorithm)) return false;
  const bool raw = algorithm == Algorithm::kPull || algorithm == Algorithm::kRegistered;
  return call.uneven || (raw && call.scales_at_source());
}

// Below, reading two clocks and telling what they said costs more than a choice gains.
constexpr uint64_t kFewestTuned = 16 * 1024;
// Records of more ranks are longer than the calls that they are about.
constexpr int kMostTuned = 64;

// Passes over a coded element that is folded: it is decoded, folded and encoded.
constexpr double kCodedPasses = 3;

// How much more a byte that travels costs than one that is folded as it came.
double fold_factor(const PreparedCall& call) {
  if (!call.coded() || call.wire == WireFormat::kPacked) return 1;
  return kCodedPasses * sizeof(float) * kWireBlock / static_cast<double>(wire_block_bytes(call.wire));
}

// Costs are compared on every rank, so the mode of its thread must not be in them.
Chooser chooser_for(const Topology& topology, const Config& config) {
  const DefaultFloatMode mode;
  return Chooser(topology, {}, static_cast<int>(config.slices_per_chunk));
}

RouteTerms terms_of(const Config& config, const Topology& topology, bool can_pull) {
  using SingleCopy = RouteTerms::SingleCopy;
  using Stores = RouteTerms::Stores;
  const SingleCopy single_copy = config.single_copy == "on"    ? SingleCopy::kOn
                                 : config.single_copy == "off" ? SingleCopy::kOff
                                                               : SingleCopy::kAuto;
  const Stores stores = config.shared_stores == "streamed"                           ? Stores::kStreamed
                        : config.shared_stores == "cached" || !topology.one_island() ? Stores::kCached
                                                                                     : Stores::kTried;
  return {single_copy, can_pull, stores};
}

}  // namespace

Router::Router(int rank, Topology topology, const Config& config, bool can_pull)
    : rank_(rank),
      topology_(std::move(topology)),
      configured_(config.algorithm),
      staged_bytes_(config.staging_bytes),
      folds_(config.fold == "any" ? Chooser::Folds::kAny : Chooser::Folds::kAlike),
      terms_(terms_of(config, topology_, can_pull)),
      chooser_(chooser_for(topology_, config)) {}

// Whether what the algorithm keeps in the library's memory holds an element of each block at least.
bool Router::fits(const PreparedCall& call, Algorithm algorithm) const {
  const auto world = static_cast<uint64_t>(topology_.world());
  if (algorithm == Algorithm::kOneShot) {
    const uint64_t blocks = most_posted_blocks(call.collective, topology_.world());
    return elements_that_fit(kPostBytes, blocks, call.element_bytes()) > 0;
  }
  if (algorithm != Algorithm::kStaged && algorithm != Algorithm::kWindow) return true;
  return elements_that_fit(staged_bytes_, world, call.element_bytes()) > 0;
}

// A call of the library's own is on memory that nobody registered, so no configured window may refuse it.
Algorithm Router::configured_for(const PreparedCall& call) const {
  return call.purpose != Purpose::kProgram && over_windows(configured_) ? Algorithm::kAuto : configured_;
}

std::string Router::obstacle(const PreparedCall& call, Algorithm algorithm) const {
  if (call.coded() && !carries_wire_format(call.collective, algorithm, topology_)) {
    return fmt::format("no plan of the algorithm {} carries a wire format here", algorithm_name(algorithm));
  }
  if (!plan_available(call.collective, algorithm, topology_)) {
    return fmt::format("there is no {} algorithm for it in a group of {}", algorithm_name(algorithm),
                       topology_.world());
  }
  if (call.in_order && !keeps_rank_order(call.collective, algorithm, call.root, topology_.world())) {
    return fmt::format("the algorithm {} does not keep the order of the ranks, which this operation needs",
                       algorithm_name(algorithm));
  }
  if (no_windows_for(call, algorithm)) {
    return fmt::format(
        "the algorithm {} {}", algorithm_name(algorithm),
        !call.uneven ? "reads contributions where they lie, so no rank can scale its own" : "takes equal counts only");
  }
  if (fits(call, algorithm)) return {};
  return fmt::format("the algorithm {} has no room for elements of {} bytes among {} ranks{}",
                     algorithm_name(algorithm), call.element_bytes(), topology_.world(),
                     algorithm == Algorithm::kOneShot ? "" : "; RONDO_STAGING_BYTES is too small for them");
}

// Microseconds; infinite where the model has no estimate.
double Router::estimated_us(const PreparedCall& call, Algorithm algorithm) const {
  return chooser_.estimated_us(call.collective, algorithm, call.bytes, call.scales_at_source(), fold_factor(call));
}

// The cheapest of the plans that carry a wire format: at least a ring.
Algorithm Router::choose_coded(const PreparedCall& call) const {
  const auto usable = [&](Algorithm algorithm) {
    return carries_wire_format(call.collective, algorithm, topology_) &&
           chooser_.within_limits(call.collective, algorithm, call.bytes);
  };
  return cheapest(usable, [&](Algorithm algorithm) { return estimated_us(call, algorithm); })
      .value_or(Algorithm::kRing);
}

// The cheapest of the plans that keep the order of the ranks.
Algorithm Router::choose_in_order(const PreparedCall& call) const {
  const auto usable = [&](Algorithm algorithm) {
    return plan_available(call.collective, algorithm, topology_) && !no_windows_for(call, algorithm) &&
           fits(call, algorithm) && keeps_rank_order(call.collective, algorithm, call.root, topology_.world());
  };
  const auto best = cheapest(usable, [&](Algorithm algorithm) { return estimated_us(call, algorithm); });
  if (best) return *best;
  throw Exception(ErrorCode::kUnsupported,
                  fmt::format("{} on rank {}: no plan for {} ranks keeps their order; take all_reduce, or root 0",
                              describe_call(call), rank_, topology_.world()));
}

// The call's own wish is refused if it cannot be fulfilled. The configured one gives way to the model instead: it is
// meant for the calls that have such a plan.
Algorithm Router::choose(const PreparedCall& call, Algorithm asked, RouteReason& why) const {
  if (topology_.world() == 1 && in_island(asked)) asked = Algorithm::kRing;  // either is a copy
  if (asked != Algorithm::kAuto) {
    if (const std::string refused = obstacle(call, asked); !refused.empty()) {
      throw Exception(ErrorCode::kInvalid,
                      fmt::format("{} on rank {}: {}", collective_name(call.collective), rank_, refused));
    }
    why = RouteReason::kAsked;
    return asked;
  }
  const Algorithm configured = configured_for(call);
  if (configured != Algorithm::kAuto && obstacle(call, configured).empty()) {
    why = RouteReason::kConfigured;
    return configured;
  }
  if (call.coded()) return choose_coded(call);
  if (call.in_order && topology_.world() > 1) return choose_in_order(call);
  const bool windows = !call.uneven && fits(call, Algorithm::kWindow) && fits(call, Algorithm::kOneShot);
  return chooser_.choose(call.collective, call.bytes, call.scales_at_source(), windows);
}

// Calls of one kind (tuner_key) have the same ways: those of the smallest, if what the model chooses for this one folds
// like them.
Alternatives Router::ways_of(const PreparedCall& call, Algorithm asked) const {
  const Algorithm wish = asked != Algorithm::kAuto ? asked : configured_for(call);
  const int world = topology_.world();
  Alternatives ways;
  if (call.coded() || call.uneven || call.scales_at_source() || call.user_bytes > 0 ||
      !fits(call, Algorithm::kStaged) || call.collective == Collective::kBarrier)
    return ways;
  if (call.bytes < kFewestTuned || world < 2 || world > kMostTuned) return ways;
  if (collective_has_root(call.collective) && !topology_.one_host()) return ways;
  if (wish == Algorithm::kWindow) {
    if (call.bytes <= kPostBytes) return ways;
    ways.algorithms = {Algorithm::kStaged, Algorithm::kPull};
    ways.count = 2;
    return ways;
  }
  if (wish != Algorithm::kAuto) return ways;
  for (const Algorithm way : chooser_.alternatives(call.collective, std::bit_floor(call.bytes), folds_)) {
    if (folds_ == Chooser::Folds::kAlike && !fold_alike(call.collective, way, call.algorithm, world)) return {};
    ways.algorithms[ways.count++] = way;
  }
  if (ways.count < 2 && terms_.stores != RouteTerms::Stores::kTried) return {};
  return ways;
}

void Router::ask(PreparedCall& call) const {
  const DefaultFloatMode mode;
  const Algorithm asked = call.asked;
  call.algorithm = choose(call, asked, call.why);
  // Over links: registered buffers are worth a question only where nothing was wished for and the call is long enough.
  call.registered_first = !call.coded() && asked == Algorithm::kAuto && configured_for(call) == Algorithm::kAuto &&
                          !in_island(call.algorithm) && call.bytes >= kAskBytes &&
                          !no_windows_for(call, Algorithm::kRegistered) &&
                          plan_available(call.collective, Algorithm::kRegistered, topology_);
  call.ways = ways_of(call, asked);
}

std::string Router::describe(const PreparedCall& call, const Route& route) const {
  const double us = estimated_us(call, route.algorithm);
  return fmt::format("{} of {} bytes among {} ranks: {} ({}{})", collective_name(call.collective), call.bytes,
                     topology_.world(), algorithm_name(route.algorithm), reason_text(route.reason),
                     std::isinf(us) ? "" : fmt::format(", {:.0f} us by the cost model", us));
}

uint64_t Router::predicted_ns(const PreparedCall& call, Algorithm algorithm) const {
  const DefaultFloatMode mode;
  const double us = estimated_us(call, algorithm);
  return std::isfinite(us) && us > 0 ? static_cast<uint64_t>(us * 1000) : 0;
}

}  // namespace rondo
