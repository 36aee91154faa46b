#include "ring/engine/run/digest_exchange.h"

#include <algorithm>
#include <map>

#include "kernels/crc32c.h"
#include "ring/base/hash.h"

namespace rondo {

DigestExchange::DigestExchange(const CommunicatorContext& context, std::shared_ptr<const Plan> plan, LinkTable& links)
    : digests_(context,
               [&](const CheckedCall& call) { return std::make_unique<LinkRun>(call, plan, context, links); }) {}

void DigestExchange::begin(const std::byte* result, uint64_t count, size_t element_bytes) {
  result_ = result;
  element_bytes_ = element_bytes;
  begin_ = 0;
  end_ = count;
  round_ = 0;
}

void DigestExchange::start(const RunStart& call) {
  Digests& own = digests_.own();
  for (uint64_t part = 0; part < kParts; ++part) {
    const uint64_t from = part_begin(part), to = part_begin(part + 1);
    own[part] = crc32c(result_ + from * element_bytes_, (to - from) * element_bytes_);
  }
  RunStart start = call;
  // A fingerprint of its own for each exchange: a rank that is in another round, or in the call itself, is
  // noticed.
  start.fingerprint = Hash64().add("digest").add(agreed_bits(call.fingerprint)).add(round_++).value();
  digests_.start(start);
}

// Narrows the range down to the first part that differs. When that is one element, its checksums are the values
// to compare.
DigestExchange::Verdict DigestExchange::look() {
  const std::vector<Digests>& all = digests_.records();
  const auto differs = [&](uint64_t part) {
    return std::any_of(all.begin(), all.end(), [&](const Digests& digests) { return digests[part] != all[0][part]; });
  };
  uint64_t part = 0;
  while (part < kParts && !differs(part)) ++part;
  if (part == kParts) return Verdict::kEqual;
  const uint64_t from = part_begin(part), to = part_begin(part + 1);
  begin_ = from;
  end_ = to;
  if (to - from > 1) return Verdict::kMore;
  find_ranks(part);
  return Verdict::kDiffers;
}

// The most frequent value counts as right; with two as frequent, no rank can be said to be wrong.
void DigestExchange::find_ranks(uint64_t part) {
  std::map<uint32_t, int> times;
  const std::vector<Digests>& all = digests_.records();
  for (const Digests& digests : all) ++times[digests[part]];
  const auto fewer = [](const auto& one, const auto& other) { return one.second < other.second; };
  const auto most = std::max_element(times.begin(), times.end(), fewer);
  const bool tied =
      std::count_if(times.begin(), times.end(), [&](const auto& entry) { return entry.second == most->second; }) > 1;
  ranks_.clear();
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (tied || all[rank][part] != most->first) ranks_.push_back(static_cast<int>(rank));
  }
}

}  // namespace rondo
