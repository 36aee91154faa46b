#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rondo/dist_opt.h"

// The options of DistOpt.
namespace rondo::dist_opt {

// Throws kInvalid in the name of a DistOpt of this rank.
[[noreturn]] void refuse(const Communicator& group, const std::string& why);

// Throws kInvalid: what DistOpt's constructor refuses, but for equal names.
void check(const Communicator& group, const std::vector<NamedGradient>& gradients, const DistOptOptions& options);

// `given`, or `otherwise`. Throws kInvalid for a number that is no exchange's.
Exchange exchange_of(const Communicator& group, std::optional<Exchange> given, Exchange otherwise);

// `given`, or the exchange's own default. Throws kInvalid where it is out of the exchange's range.
double spars_of(const Communicator& group, Exchange exchange, std::optional<double> given);

// What acts on parameters, after the update.
constexpr bool after_update(Exchange exchange) {
  return exchange == Exchange::kPartialUpdate || exchange == Exchange::kLocalSgd;
}
constexpr bool sparse(Exchange exchange) {
  return exchange == Exchange::kSparseTopK || exchange == Exchange::kSparseThreshold;
}
// kNone for exchanges without one.
WireFormat format_of(Exchange exchange, const DistOptOptions& options);

}  // namespace rondo::dist_opt
