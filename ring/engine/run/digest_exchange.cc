#include "ring/engine/run/digest_exchange.h"

#include <algorithm>
#include <map>

#include "kernels/crc32c.h"
#include "ring/base/hash.h"
#include "ring/engine/run/gather_call.h"

namespace rondo {

DigestExchange::DigestExchange(const CommunicatorContext& context, std::shared_ptr<const Plan> plan, LinkTable& links)
    : rank_(context.rank),
      gather_(gather_of_bytes(context, sizeof(Digests))),
      digests_(context.members.size()),
      run_(std::make_unique<LinkRun>(gather_, std::move(plan), context, links)) {}

void DigestExchange::begin(const std::byte* result, uint64_t count, size_t element_bytes) {
  result_ = result;
  element_bytes_ = element_bytes;
  begin_ = 0;
  end_ = count;
  round_ = 0;
}

void DigestExchange::start(const RunStart& call) {
  Digests& own = digests_[static_cast<size_t>(rank_)];
  for (uint64_t part = 0; part < kParts; ++part) {
    const uint64_t from = part_begin(part), to = part_begin(part + 1);
    own[part] = crc32c(result_ + from * element_bytes_, (to - from) * element_bytes_);
  }
  RunStart start;
  start.input = reinterpret_cast<const std::byte*>(&own);
  start.output = reinterpret_cast<std::byte*>(digests_.data());
  start.sequence = call.sequence;
  start.fingerprint = Hash64().add("digest").add(call.fingerprint).add(round_++).value();
  run_->start(start);
}

DigestExchange::Verdict DigestExchange::look() {
  const auto differs = [this](uint64_t part) {
    return std::any_of(digests_.begin(), digests_.end(),
                       [&](const Digests& digests) { return digests[part] != digests_[0][part]; });
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

void DigestExchange::find_ranks(uint64_t part) {
  std::map<uint32_t, int> times;
  for (const Digests& digests : digests_) ++times[digests[part]];
  const auto fewer = [](const auto& one, const auto& other) { return one.second < other.second; };
  const auto most = std::max_element(times.begin(), times.end(), fewer);
  const bool tied =
      std::count_if(times.begin(), times.end(), [&](const auto& entry) { return entry.second == most->second; }) > 1;
  ranks_.clear();
  for (size_t rank = 0; rank < digests_.size(); ++rank) {
    if (tied || digests_[rank][part] != most->first) ranks_.push_back(static_cast<int>(rank));
  }
}

}  // namespace rondo
