#include "tests/life/memory.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/support/element.h"

namespace rondo::life {

std::string Watched::check() {
  for (const Loose& part : loose) {
    if (part.count == 0) continue;
    const std::byte* got = begin + part.at;
    const size_t size = part.cycle == nullptr ? 1 : dtype_bytes(part.cycle->dtype);
    for (uint64_t i = 0; part.cycle != nullptr && i < part.count; ++i) {
      const double value = testing::load_value(part.cycle->dtype, got + i * size);
      const double want = part.cycle->values[(part.phase + i) % kPeriod];
      if (!(std::abs(value - want) <= part.bound)) {
        return name + ": element " + std::to_string(i) + " of " + std::to_string(part.count) + " is " +
               std::to_string(value) + ", must be within " + std::to_string(part.bound) + " of " + std::to_string(want);
      }
    }
    std::memcpy(expected.data() + part.at, got, part.count * size);
  }
  if (expected.empty() || std::memcmp(begin, expected.data(), expected.size()) == 0) return "";
  return difference();
}

std::string Watched::difference() const {
  const auto [got, want] = std::mismatch(begin, begin + expected.size(), expected.begin());
  size_t wrong = 0;
  for (size_t i = 0; i < expected.size(); ++i) wrong += begin[i] != expected[i];
  const ptrdiff_t byte = got - data, size = static_cast<ptrdiff_t>(dtype_bytes(dtype));
  const auto bytes = static_cast<ptrdiff_t>(expected.size() - kGuardBytes) - (data - begin);
  std::string text = name + ": byte " + std::to_string(byte) + " of " + std::to_string(bytes) + " is " +
                     std::to_string(static_cast<int>(*got)) + " instead of " + std::to_string(static_cast<int>(*want)) +
                     "; " + std::to_string(wrong) + " bytes differ";
  if (byte < 0 || byte + size > bytes) return text + "; it lies beside the buffer";
  const ptrdiff_t i = byte / size;
  return text + "; element " + std::to_string(i) + " is " +
         std::to_string(testing::load_value(dtype, data + i * size)) + " instead of " +
         std::to_string(testing::load_value(dtype, expected.data() + at(data) + static_cast<size_t>(i * size)));
}

std::byte* Memory::kept(const Use& use, bool registered, size_t size) {
  Region& region = regions_[{use, registered}];
  if (region.size < size) {
    region.size = size + size / 4;
    if (registered) {
      if (region.registered != nullptr) job_->deallocate(region.registered);
      region.registered = static_cast<std::byte*>(job_->allocate(region.size));
    } else {
      region.plain.resize(region.size + 64);
    }
  }
  if (registered) return region.registered;
  const auto address = reinterpret_cast<uintptr_t>(region.plain.data());
  return region.plain.data() + (64 - address % 64) % 64;
}

Watched Memory::take(const Use& use, const std::string& where, size_t bytes,
                     std::vector<std::unique_ptr<std::byte[]>>& fresh) {
  const size_t plus = where.find('+');
  const size_t behind = plus == std::string::npos ? 0 : std::stoul(where.substr(plus + 1));
  const size_t size = kGuardBytes + behind + bytes + kGuardBytes;
  Watched result;
  result.name = std::get<2>(use) == 0 ? "input" : "output";
  if (where[0] == 'n') {
    fresh.emplace_back(new std::byte[size]);
    result.begin = fresh.back().get();
  } else {
    result.begin = kept(use, where[0] == 'r', size);
  }
  std::memset(result.begin, static_cast<int>(kUnwritten), size);
  result.data = result.begin + kGuardBytes + behind;
  return result;
}

std::vector<float>& Memory::residual(int line, uint64_t count) {
  std::vector<float>& values = residuals_[line];
  if (values.size() != count) values.assign(count, 0);
  return values;
}

void Memory::free_registered(int below) {
  for (auto& [use, region] : regions_) {
    if (std::get<0>(use.first) >= below) continue;
    if (region.registered != nullptr) job_->deallocate(region.registered);
    region.registered = nullptr;
    if (use.second) region.size = 0;
  }
}

}  // namespace rondo::life
