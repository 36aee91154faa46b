// Synchronous data-parallel training: each rank computes the gradient of its share of the batch, an all_reduce averages
// the gradients, and every rank takes the same step. The program then trains alone on whole batches, and shows that
// both ways lead to the same model.
//   rondo-run -n 4 bazel-bin/examples/ring_sgd
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include <rondo/communicator.h>

namespace {

constexpr size_t kFeatures = 32;
constexpr size_t kSamplesPerRank = 64;  // of each batch
constexpr int kSteps = 200;
constexpr double kLearningRate = 0.05;
// Both ways add the same numbers in different orders: float64 keeps the difference after all steps far below this.
constexpr double kTolerance = 1e-9;

using Vector = std::vector<double>;

struct Batch {
  Vector inputs;   // samples x kFeatures
  Vector targets;  // samples
};

// Targets are a fixed linear function of the inputs plus noise. Every rank draws the same batch from the same seed.
Batch draw_batch(int step, size_t samples) {
  std::mt19937_64 random(static_cast<uint64_t>(step));
  std::normal_distribution<double> normal;
  Batch batch{Vector(samples * kFeatures), Vector(samples)};
  for (size_t sample = 0; sample < samples; ++sample) {
    double target = 0.01 * normal(random);
    for (size_t i = 0; i < kFeatures; ++i) {
      const double input = normal(random);
      batch.inputs[sample * kFeatures + i] = input;
      target += input * std::sin(static_cast<double>(i));
    }
    batch.targets[sample] = target;
  }
  return batch;
}

// Of the mean squared error of a linear model over samples [first, first + count).
Vector gradient(const Vector& model, const Batch& batch, size_t first, size_t count) {
  Vector result(kFeatures);
  for (size_t sample = first; sample < first + count; ++sample) {
    const double* input = &batch.inputs[sample * kFeatures];
    double error = -batch.targets[sample];
    for (size_t i = 0; i < kFeatures; ++i) error += model[i] * input[i];
    for (size_t i = 0; i < kFeatures; ++i) result[i] += 2 * error * input[i] / static_cast<double>(count);
  }
  return result;
}

void descend(Vector& model, const Vector& gradient) {
  for (size_t i = 0; i < kFeatures; ++i) model[i] -= kLearningRate * gradient[i];
}

Vector train_together(rondo::Communicator& group) {
  Vector model(kFeatures);
  for (int step = 0; step < kSteps; ++step) {
    const Batch batch = draw_batch(step, kSamplesPerRank * static_cast<size_t>(group.size()));
    Vector mine = gradient(model, batch, kSamplesPerRank * static_cast<size_t>(group.rank()), kSamplesPerRank);
    group.all_reduce(mine.data(), mine.data(), mine.size(), rondo::DType::kFloat64, rondo::Op::kAverage);
    descend(model, mine);
  }
  return model;
}

Vector train_alone(int world) {
  Vector model(kFeatures);
  const size_t samples = kSamplesPerRank * static_cast<size_t>(world);
  for (int step = 0; step < kSteps; ++step) {
    descend(model, gradient(model, draw_batch(step, samples), 0, samples));
  }
  return model;
}

double largest_difference(const Vector& left, const Vector& right) {
  double largest = 0;
  for (size_t i = 0; i < left.size(); ++i) largest = std::fmax(largest, std::fabs(left[i] - right[i]));
  return largest;
}

// All ranks took the same steps, so their models agree to the last bit.
bool same_on_all_ranks(rondo::Communicator& group, const Vector& model) {
  Vector least(model), most(model);
  group.all_reduce(model.data(), least.data(), model.size(), rondo::DType::kFloat64, rondo::Op::kMin);
  group.all_reduce(model.data(), most.data(), model.size(), rondo::DType::kFloat64, rondo::Op::kMax);
  return least == model && most == model;
}

}  // namespace

int main() {
  try {
    rondo::Communicator group = rondo::Communicator::join();
    const Vector model = train_together(group);
    const bool same = same_on_all_ranks(group, model);
    const double difference = largest_difference(model, train_alone(group.size()));
    if (group.rank() == 0) {
      std::printf("%d steps, %d ranks: the models %s on all ranks, and differ from training alone by %.1e\n", kSteps,
                  group.size(), same ? "are the same" : "DIFFER", difference);
    }
    return same && difference < kTolerance ? 0 : 1;
  } catch (const rondo::Exception& error) {
    std::fprintf(stderr, "%s: %s\n", rondo::error_code_name(error.code()), error.what());
    return 1;
  }
}
