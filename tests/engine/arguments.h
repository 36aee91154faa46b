#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

namespace rondo::testing {

// From --name=N on the command line.
uint64_t argument(std::string_view name, uint64_t by_default);
// {first seed, number of seeds}: from --first-seed=N and --seeds=N on the command line, else {1, by_default}.
std::pair<uint64_t, uint64_t> seed_range(uint64_t by_default);

}  // namespace rondo::testing
