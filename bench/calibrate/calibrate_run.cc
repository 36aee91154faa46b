#include "bench/calibrate/calibrate_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

#include "bench/calibrate/calibrate.h"
#include "bench/output/whole_file.h"
#include "bench/rondo_group.h"
#include "kernels/combine.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

constexpr const char* kKindNames[kPairKinds] = {"shared memory", "TCP inside a host", "TCP between hosts"};

class RondoSeam : public CalibrationSeam {
 public:
  explicit RondoSeam(Communicator& communicator) : communicator_(communicator), world_(communicator, {}) {}

  Group& world() override { return world_; }
  const Topology& topology() const override { return communicator_.topology(); }

  PairGroups open_pair(int a, int b) override {
    if (communicator_.rank() != a && communicator_.rank() != b) return {};
    const int members[] = {a, b};
    Communicator& pair = pairs_.emplace_back(communicator_.new_group(members));
    return {std::make_unique<RondoGroup>(pair, RondoCalls{.algorithm = Algorithm::kDirect}),
            std::make_unique<RondoGroup>(pair, RondoCalls{.algorithm = Algorithm::kRing})};
  }

  double now_us() override {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::micro>(now).count();
  }

  void fold(uint64_t bytes) override {
    const size_t count = bytes / sizeof(float);
    own_.resize(count);
    theirs_.resize(count);
    const void* const sources[] = {own_.data(), theirs_.data()};
    void* const targets[] = {own_.data()};
    combine({DType::kFloat32, Op::kSum, 1.0, 2}, {sources, targets, 0, 2, 1, false}, count);
  }

 private:
  Communicator& communicator_;
  RondoGroup world_;
  std::deque<Communicator> pairs_;  // groups refer to them
  std::vector<float> own_, theirs_;
};

CostModel merged(const CostModel& base, const Calibration& found) {
  CostModel model = base;
  for (int kind = 0; kind < kPairKinds; ++kind) {
    const auto pair = static_cast<PairKind>(kind);
    if (!found.measured[static_cast<size_t>(kind)]) continue;
    model.of(pair).alpha_us = found.model.of(pair).alpha_us;
    model.of(pair).beta_us_per_byte = found.model.of(pair).beta_us_per_byte;
  }
  model.gamma_us_per_byte = found.model.gamma_us_per_byte;
  return model;
}

}  // namespace

CostModel calibration_base(const std::string& path) {
  std::ifstream file(path);
  if (file) {
    try {
      return CostModel::parse(std::string(std::istreambuf_iterator<char>(file), {}));
    } catch (const Exception& error) {
      throw Exception(error.code(), fmt::format("--calibrate: {}: {}", path, error.what()));
    }
  }
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (access(folder.c_str(), W_OK) == 0) return {};
  throw Exception(ErrorCode::kInvalid,
                  fmt::format("--calibrate: {}: {}: {}", path, folder.string(), std::strerror(errno)));
}

int run_calibration(Communicator& communicator, const Options& options, const CostModel& base) {
  RondoSeam seam(communicator);
  const Calibration found = calibrate(seam);
  if (communicator.rank() != 0) return 0;
  for (int kind = 0; kind < kPairKinds; ++kind) {
    const PairCost& cost = found.model.of(static_cast<PairKind>(kind));
    if (found.measured[static_cast<size_t>(kind)]) {
      fmt::print("# {}: {:.2f} us a message, {:.2f} GB/s\n", kKindNames[kind], cost.alpha_us,
                 1e-3 / cost.beta_us_per_byte);
    } else {
      fmt::print("# {}: no such pair of ranks; as it was\n", kKindNames[kind]);
    }
  }
  fmt::print("# folding: {:.2f} GB/s\n", 1e-3 / found.model.gamma_us_per_byte);
  replace_file(options.calibrate, merged(base, found).describe());
  fmt::print("# {}: for RONDO_COST_MODEL, on all ranks alike\n", options.calibrate);
  return 0;
}

}  // namespace rondo::bench
