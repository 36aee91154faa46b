// What bars compare with beyond what rondo-bench itself shows. It forks and spins, and prints a line of JSON.
//   limits walk --ranks N --sizes S          {"gbps": ...}: the best that raw TCP does through the whole buffer
//   limits fused-pass --ranks N --sizes S    {"us": ...}: one pass over memory that the ranks share
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "bench/limit/limit.h"
#include "bench/options.h"
#include "bench/output/files.h"
#include "tests/lab/limits/fused_pass.h"

namespace rondo::bench {
namespace {

std::string answer(const std::vector<std::string>& args) {
  const std::string name = args.empty() ? "" : args.front();
  const std::variant<Options, Stop> parsed = parse_options({args.begin() + (args.empty() ? 0 : 1), args.end()});
  if (const Stop* stop = std::get_if<Stop>(&parsed)) throw std::invalid_argument(stop->text);
  const auto& options = std::get<Options>(parsed);
  const bool known = name == "walk" || name == "fused-pass";
  if (!known || options.ranks < 2 || options.sizes.size() != 1) {
    throw std::invalid_argument("limits walk | fused-pass --ranks N --sizes S");
  }
  const uint64_t bytes = options.sizes.front();
  if (name == "walk") return json_of(measure_stream_limit(options.ranks, bytes, Memory::kWalk));
  return json_of_time(fused_pass_us(options.ranks, bytes));
}

}  // namespace
}  // namespace rondo::bench

int main(int argc, char** argv) {
  try {
    std::puts(rondo::bench::answer({argv + 1, argv + argc}).c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "limits: %s\n", error.what());
    return 1;
  }
}
