#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::bench {

inline constexpr uint64_t kMaxSizeBytes = uint64_t{1} << 40;
inline constexpr size_t kMaxSizes = 10'000;

// "8", "64K", "1.5M", "4g", "64MiB": bytes; K, M and G are powers of 1024, as in nccl-tests. nullopt if it is no such
// thing, or above kMaxSizeBytes.
std::optional<uint64_t> parse_size(std::string_view text);

// "8,64K,1M" in the order given; nullopt if one is no size or the list is empty.
std::optional<std::vector<uint64_t>> parse_size_list(std::string_view text);

// first, first * factor, ... (factor >= 2) or, if step > 0, first, first + step, ...; up to and including last.
// Requires 0 < first <= last. At most kMaxSizes.
std::vector<uint64_t> size_range(uint64_t first, uint64_t last, uint64_t factor, uint64_t step);

// "64 MiB", "8 B", "1.5 KiB".
std::string size_text(uint64_t bytes);

}  // namespace rondo::bench
