// Data-parallel training as a sequence of sums over all ranks: the caller of next() adds up what it gives, by any
// library, and calls it again.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

#include "examples/trainers/mlp.h"

namespace mlp {

// Arguments of the program: [EPOCHS [IMAGES [FOLDER]]].
class Steps {
 public:
  Steps(int argc, char** argv, int rank, int world)
      : epochs_(argc > 1 ? std::atoi(argv[1]) : 2),
        rank_(rank),
        world_(world),
        network_(0),
        sgd_(kRate, kMomentum, Network::kSize) {
    const size_t images = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 60000;
    const char* folder = argc > 3 ? argv[3] : idx::kFolder;
    train_ = idx::load(folder, "train", images, rank, world);
    test_ = idx::load(folder, "t10k", images, rank, world);
    steps_ = train_.count() / kBatch;
    // The same memory for all sums, to which Gloo binds. Its end are the sums of an epoch.
    sums_.resize(Network::kSize + kScores);
  }

  // What is to be added up over all ranks next, in place: the gradients of a step, or the scores of an epoch. Empty at
  // the end.
  std::span<float> next() {
    if (given_) take();
    if (epoch_ >= epochs_) return report();
    const std::span<float> sums = sums_;
    given_ = true;
    if (step_ < steps_) {
      network_.backward(train_, step_ * kBatch, kBatch, [](const std::string&) {});
      std::copy(network_.gradient.begin(), network_.gradient.end(), sums_.begin());
      begin_ = Clock::now();
      return sums.first(Network::kSize);
    }
    const Score train = std::exchange(network_.score, {});
    for (size_t at = 0; at + kBatch <= test_.count(); at += kBatch) network_.forward(test_, at, kBatch);
    const Score test = std::exchange(network_.score, {});
    const double scores[kScores] = {train.loss, train.right, train.seen, test.right, test.seen};
    std::copy(scores, scores + kScores, sums_.end() - kScores);
    return sums.last(kScores);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kScores = 5;

  // The sums of the last next().
  void take() {
    given_ = false;
    if (step_ < steps_) {
      seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count();
      for (size_t i = 0; i < Network::kSize; ++i) sums_[i] /= static_cast<float>(world_);
      sgd_.update(0, network_.parameters, std::span<const float>(sums_).first(Network::kSize));
      ++step_;
      return;
    }
    const float* scores = &sums_[Network::kSize];
    if (rank_ == 0) {
      std::printf("Starting Epoch %d:\n", epoch_);
      std::printf("Training loss = %f, training accuracy = %f\n", scores[0], scores[1] / scores[2]);
      std::printf("Evaluation accuracy = %f\n", scores[3] / scores[4]);
    }
    ++epoch_;
    step_ = 0;
  }
  std::span<float> report() {
    if (rank_ == 0) {
      const double steps = static_cast<double>(steps_) * epochs_, all = seconds_since(start_);
      std::printf("%d ranks, %.0f steps: %.3f ms a step, of which %.3f ms in all_reduce\n", world_, steps,
                  all / steps * 1e3, seconds_ / steps * 1e3);
    }
    return {};
  }
  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  int epochs_, rank_, world_;
  Network network_;
  MomentumSgd sgd_;
  idx::Images train_, test_;
  std::vector<float> sums_;
  size_t steps_ = 0, step_ = 0;
  int epoch_ = 0;
  bool given_ = false;
  double seconds_ = 0;
  Clock::time_point start_ = Clock::now(), begin_;
};

}  // namespace mlp
