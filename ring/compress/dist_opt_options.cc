#include "ring/compress/dist_opt_options.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "ring/base/given_numbers.h"

namespace rondo::dist_opt {

void refuse(const Communicator& group, const std::string& why) {
  throw Exception(ErrorCode::kInvalid, fmt::format("DistOpt on rank {}: {}", group.rank(), why));
}

Exchange exchange_of(const Communicator& group, std::optional<Exchange> given, Exchange otherwise) {
  const Exchange exchange = given.value_or(otherwise);
  if (exchange <= Exchange::kLocalSgd) return exchange;
  refuse(group, fmt::format("exchange is {}; there is none beyond {}", static_cast<int>(exchange),
                            static_cast<int>(Exchange::kLocalSgd)));
}

double spars_of(const Communicator& group, Exchange exchange, std::optional<double> given) {
  const double spars = given.value_or(exchange == Exchange::kSparseThreshold ? 1e-3 : 0.05);
  if (exchange == Exchange::kSparseTopK && !(spars > 0 && spars <= 1)) {
    refuse(group, fmt::format("spars is {}; top-k needs a fraction above 0, at most 1 (0 would send nothing)", spars));
  }
  if (exchange == Exchange::kSparseThreshold && !(spars >= 0 && std::isfinite(spars))) {
    refuse(group, fmt::format("spars is {}; a threshold is a number from 0 on", spars));
  }
  return spars;
}

// Comparisons are written so that NaN is refused, too. The counts' sum in bytes must fit int64.
void check(const Communicator& group, const std::vector<NamedGradient>& gradients, const DistOptOptions& options) {
  if (gradients.empty()) refuse(group, "there are no gradients");
  for (const NamedGradient& g : gradients) {
    if (g.count > 0 && g.parameter == nullptr) refuse(group, fmt::format("the parameter \"{}\" is null", g.name));
  }
  std::vector<uint64_t> counts;
  for (const NamedGradient& g : gradients) counts.push_back(g.count);
  GivenNumbers::of_caller("DistOpt", group.rank()).sum(INT64_MAX / sizeof(float), counts, "the gradients' counts");
  exchange_of(group, {}, options.exchange);
  spars_of(group, options.exchange, options.spars);
  if (!(options.clip >= 0)) refuse(group, fmt::format("clip is {}; it is positive, or 0 for none", options.clip));
  if (options.bucket_bytes == 0 || options.partition_bytes == 0 || options.every == 0 || options.outer_fragments == 0) {
    refuse(group, "bucket_bytes, partition_bytes, every and outer_fragments are at least 1");
  }
  if ((options.outer_wire != WireFormat::kNone || options.outer_delay > 0 || options.outer_fragments > 1) &&
      options.exchange != Exchange::kLocalSgd) {
    refuse(group,
           "outer_wire, outer_delay or outer_fragments is given, and the exchange is not local SGD, whose changes "
           "travel so");
  }
  if (options.outer_fragments > options.every) {
    refuse(group, fmt::format("outer_fragments is {}; it is at most every, which is {}", options.outer_fragments,
                              options.every));
  }
  if (static_cast<int>(options.outer_wire) >= kWireFormats) {
    refuse(group, fmt::format("outer_wire is {}, which is no wire format", static_cast<int>(options.outer_wire)));
  }
  if (options.outer_wire == WireFormat::kPacked) {
    refuse(group, "outer_wire is packed, which is for broadcast and all_gather; changes are added up");
  }
  if (options.outer_delay >= options.every) {
    refuse(group, fmt::format("outer_delay is {}; it is below every, which is {}", options.outer_delay, options.every));
  }
  if (!std::isfinite(options.outer_rate) || !std::isfinite(options.outer_momentum)) {
    refuse(group, fmt::format("outer_rate is {}, outer_momentum {}; they are finite numbers", options.outer_rate,
                              options.outer_momentum));
  }
}

WireFormat format_of(Exchange exchange, const DistOptOptions& options) {
  switch (exchange) {
    case Exchange::kLocalSgd:
      return options.outer_wire;
    case Exchange::kFloat16:
      return WireFormat::kFloat16;
    case Exchange::kBfloat16:
      return WireFormat::kBfloat16;
    case Exchange::kInt8:
      return WireFormat::kInt8;
    default:
      return WireFormat::kNone;
  }
}

}  // namespace rondo::dist_opt
