#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace rondo::bench {

// The gradients that data-parallel training of a published model reduces in each step: elements of each parameter, in
// the order in which the backward pass finishes them (the reverse of the model's own).

// ResNet-50 (He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, 2015, table 1; 1000 classes, batch
// normalization with scale and shift, no bias in convolutions): 161 tensors, 25,557,032 elements.
std::vector<uint64_t> resnet50_tensors();

// GPT-2 small (Radford and others: Language Models are Unsupervised Multitask Learners, 2019; 12 layers of width 768,
// 50,257 tokens, 1,024 positions, output weights shared with the token embedding): 148 tensors, 124,439,808 elements.
std::vector<uint64_t> gpt2_tensors();

// "resnet50", "gpt2".
std::optional<std::vector<uint64_t>> tensors_by_name(std::string_view name);

}  // namespace rondo::bench
