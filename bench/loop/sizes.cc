#include "bench/loop/sizes.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>

namespace rondo::bench {
namespace {

// "", "B", "K", "KB", "KiB", in either case.
std::optional<uint64_t> unit_of(std::string_view suffix) {
  std::string letters;
  for (char c : suffix) letters.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  if (letters.empty() || letters == "B") return 1;
  for (std::string_view tail : {"", "B", "IB"}) {
    if (letters.substr(1) != tail) continue;
    switch (letters[0]) {
      case 'K':
        return uint64_t{1} << 10;
      case 'M':
        return uint64_t{1} << 20;
      case 'G':
        return uint64_t{1} << 30;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<uint64_t> parse_size(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || !(number >= 0)) return std::nullopt;
  const std::optional<uint64_t> unit = unit_of(text.substr(static_cast<size_t>(end - text.data())));
  if (!unit) return std::nullopt;
  const double bytes = number * static_cast<double>(*unit);
  // Whole bytes only: "1.5M" is, "0.3K" is not.
  if (bytes > static_cast<double>(kMaxSizeBytes) || bytes != std::floor(bytes)) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

std::optional<std::vector<uint64_t>> parse_size_list(std::string_view text) {
  std::vector<uint64_t> sizes;
  while (true) {
    const size_t comma = text.find(',');
    const std::optional<uint64_t> size = parse_size(text.substr(0, comma));
    if (!size || sizes.size() == kMaxSizes) return std::nullopt;
    sizes.push_back(*size);
    if (comma == std::string_view::npos) return sizes;
    text.remove_prefix(comma + 1);
  }
}

std::vector<uint64_t> size_range(uint64_t first, uint64_t last, uint64_t factor, uint64_t step) {
  std::vector<uint64_t> sizes;
  for (uint64_t size = first; size <= last && sizes.size() < kMaxSizes;) {
    sizes.push_back(size);
    if (step == 0 && size > last / factor) break;  // the product may not fit
    size = step > 0 ? size + step : size * factor;
  }
  return sizes;
}

std::string size_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 3; ++unit) value /= 1024;
  return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

}  // namespace rondo::bench
