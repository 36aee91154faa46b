// A perceptron of one hidden layer for images of 28x28 and 10 classes: softmax and cross entropy, in float32.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "idx.h"

namespace mlp {

inline constexpr size_t kHidden = 100, kClasses = 10;

struct Tensor {
  std::string name;
  size_t begin, count;  // of Network::parameters and Network::gradient
};

// Sums over the images of a rank since the program has taken the last ones.
struct Score {
  double loss = 0;  // of the steps' mean losses
  double right = 0, seen = 0;
};

// Parameters and gradients lie in one array each, tensor after tensor.
class Network {
 public:
  // The same seed makes the same network on every rank.
  explicit Network(unsigned seed) : parameters(kSize), gradient(kSize) {
    std::mt19937 random(seed);
    const auto fill = [&](const Tensor& tensor, size_t inputs) {
      const double limit = 1 / std::sqrt(static_cast<double>(inputs));
      for (size_t i = 0; i < tensor.count; ++i) {
        const double fraction = static_cast<double>(random()) * 0x1p-32;  // distributions differ between libraries
        parameters[tensor.begin + i] = static_cast<float>((2 * fraction - 1) * limit);
      }
    };
    fill(kTensors[0], idx::kPixels);
    fill(kTensors[2], kHidden);
  }

  // In the order of the forward pass.
  inline static const std::vector<Tensor> kTensors = {
      {"hidden.weight", 0, idx::kPixels* kHidden},
      {"hidden.bias", idx::kPixels* kHidden, kHidden},
      {"output.weight", (idx::kPixels + 1) * kHidden, kHidden* kClasses},
      {"output.bias", (idx::kPixels + 1) * kHidden + kHidden* kClasses, kClasses},
  };
  static constexpr size_t kSize = (idx::kPixels + 1) * kHidden + (kHidden + 1) * kClasses;

  std::vector<float> parameters, gradient;
  Score score;

  // The gradient of the mean loss over images first .. first + count - 1; ready(name) when a tensor's is complete.
  // Tensors of the last layer come first, so their exchange runs behind the rest of this pass.
  template <class Ready>
  void backward(const idx::Images& images, size_t first, size_t count, Ready ready) {
    std::fill(gradient.begin(), gradient.end(), 0.0f);
    forward(images, first, count);
    const float share = 1.0f / static_cast<float>(count);
    std::vector<float> to_hidden(count * kHidden);
    float *weight = gradient_of(2), *bias = gradient_of(3);
    for (size_t b = 0; b < count; ++b) {
      float* error = &outputs_[b * kClasses];  // probabilities become errors
      error[images.labels[first + b]] -= 1.0f;
      for (size_t c = 0; c < kClasses; ++c) bias[c] += error[c] *= share;
      for (size_t h = 0; h < kHidden; ++h) {
        const float value = hidden_[b * kHidden + h];
        float sum = 0;
        for (size_t c = 0; c < kClasses; ++c) {
          weight[h * kClasses + c] += value * error[c];
          sum += error[c] * parameters[kTensors[2].begin + h * kClasses + c];
        }
        to_hidden[b * kHidden + h] = value > 0 ? sum : 0.0f;
      }
    }
    ready(kTensors[3].name);
    ready(kTensors[2].name);
    weight = gradient_of(0), bias = gradient_of(1);
    for (size_t b = 0; b < count; ++b) {
      const float *error = &to_hidden[b * kHidden], *pixels = &images.pixels[(first + b) * idx::kPixels];
      for (size_t h = 0; h < kHidden; ++h) bias[h] += error[h];
      for (size_t i = 0; i < idx::kPixels; ++i) {
        if (pixels[i] != 0) add_scaled(weight + i * kHidden, error, pixels[i]);
      }
    }
    ready(kTensors[1].name);
    ready(kTensors[0].name);
  }

  // Adds to score: loss (the mean over these images), right answers, images.
  void forward(const idx::Images& images, size_t first, size_t count) {
    hidden_.assign(count * kHidden, 0.0f);
    outputs_.assign(count * kClasses, 0.0f);
    double loss = 0;
    for (size_t b = 0; b < count; ++b) {
      const float* pixels = &images.pixels[(first + b) * idx::kPixels];
      float *hidden = &hidden_[b * kHidden], *outputs = &outputs_[b * kClasses];
      std::copy_n(&parameters[kTensors[1].begin], kHidden, hidden);
      for (size_t i = 0; i < idx::kPixels; ++i) {
        if (pixels[i] != 0) add_scaled(hidden, &parameters[i * kHidden], pixels[i]);
      }
      std::copy_n(&parameters[kTensors[3].begin], kClasses, outputs);
      for (size_t h = 0; h < kHidden; ++h) {
        hidden[h] = std::max(hidden[h], 0.0f);
        for (size_t c = 0; c < kClasses; ++c) {
          outputs[c] += hidden[h] * parameters[kTensors[2].begin + h * kClasses + c];
        }
      }
      const uint8_t label = images.labels[first + b];
      const float* best = std::max_element(outputs, outputs + kClasses);
      score.right += best - outputs == label;
      loss -= std::log(softmax(outputs, *best)[label]);
    }
    score.loss += loss / static_cast<double>(count);
    score.seen += static_cast<double>(count);
  }

 private:
  float* gradient_of(size_t tensor) { return &gradient[kTensors[tensor].begin]; }
  static void add_scaled(float* to, const float* from, float factor) {
    for (size_t h = 0; h < kHidden; ++h) to[h] += from[h] * factor;
  }
  // The largest is subtracted, so no exponential overflows.
  static const float* softmax(float* outputs, float largest) {
    float sum = 0;
    for (size_t c = 0; c < kClasses; ++c) sum += outputs[c] = std::exp(outputs[c] - largest);
    for (size_t c = 0; c < kClasses; ++c) outputs[c] /= sum;
    return outputs;
  }

  std::vector<float> hidden_, outputs_;  // of the images of the last forward()
};

// SGD with momentum, as torch's: v = momentum v + g; p -= rate v.
class MomentumSgd {
 public:
  MomentumSgd(float rate, float momentum, size_t count) : rate_(rate), momentum_(momentum), velocity_(count) {}
  // begin: where these parameters lie among all.
  void update(size_t begin, std::span<float> parameters, std::span<const float> gradient) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      velocity_[begin + i] = momentum_ * velocity_[begin + i] + gradient[i];
      parameters[i] -= rate_ * velocity_[begin + i];
    }
  }

 private:
  float rate_, momentum_;
  std::vector<float> velocity_;
};

inline constexpr float kRate = 0.05f, kMomentum = 0.9f;
inline constexpr size_t kBatch = 64;  // images a rank and step

}  // namespace mlp
