#include "bench/loop/tensors.h"

#include <algorithm>

namespace rondo::bench {
namespace {

void add_convolution(std::vector<uint64_t>& tensors, uint64_t in, uint64_t out, uint64_t kernel) {
  tensors.push_back(in * out * kernel * kernel);
  tensors.insert(tensors.end(), {out, out});  // scale and shift of the normalization behind it
}

// 1x1 to `width`, 3x3, 1x1 to four times that; the first block of a stage also projects its input.
void add_bottleneck(std::vector<uint64_t>& tensors, uint64_t in, uint64_t width, bool projects) {
  add_convolution(tensors, in, width, 1);
  add_convolution(tensors, width, width, 3);
  add_convolution(tensors, width, 4 * width, 1);
  if (projects) add_convolution(tensors, in, 4 * width, 1);
}

void add_linear(std::vector<uint64_t>& tensors, uint64_t in, uint64_t out) {
  tensors.insert(tensors.end(), {in * out, out});
}

}  // namespace

// Built in the model's order, and reversed at the end: a backward pass finishes the last layers first.
std::vector<uint64_t> resnet50_tensors() {
  std::vector<uint64_t> tensors;
  add_convolution(tensors, 3, 64, 7);
  uint64_t in = 64, width = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      add_bottleneck(tensors, in, width, block == 0);
      in = 4 * width;
    }
    width *= 2;
  }
  add_linear(tensors, in, 1000);
  std::reverse(tensors.begin(), tensors.end());
  return tensors;
}

// Token and position embeddings, twelve layers, the last normalization; the output shares the token embedding.
std::vector<uint64_t> gpt2_tensors() {
  constexpr uint64_t kWidth = 768, kTokens = 50'257, kPositions = 1024;
  std::vector<uint64_t> tensors{kTokens * kWidth, kPositions * kWidth};
  const auto add_normalization = [&] { tensors.insert(tensors.end(), {kWidth, kWidth}); };
  for (int layer = 0; layer < 12; ++layer) {
    add_normalization();
    add_linear(tensors, kWidth, 3 * kWidth);  // queries, keys and values
    add_linear(tensors, kWidth, kWidth);
    add_normalization();
    add_linear(tensors, kWidth, 4 * kWidth);
    add_linear(tensors, 4 * kWidth, kWidth);
  }
  add_normalization();
  std::reverse(tensors.begin(), tensors.end());
  return tensors;
}

std::optional<std::vector<uint64_t>> tensors_by_name(std::string_view name) {
  if (name == "resnet50") return resnet50_tensors();
  if (name == "gpt2") return gpt2_tensors();
  return std::nullopt;
}

}  // namespace rondo::bench
