// A checkpoint of mlp.cc: how many epochs are over, DistOpt's state, and parameters and momentum of every rank, which
// differ between ranks after partialUpdate and localSGD. Numbers as they are in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/dist_opt.h>

#include "mlp.h"

namespace mlp::checkpoint {

// A vector is its number of values, of 8 bytes, and the values. Failures show in the stream.
template <class Value>
void write(std::ofstream& file, const std::vector<Value>& values) {
  const uint64_t count = values.size();
  file.write(reinterpret_cast<const char*>(&count), sizeof count);
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(count * sizeof(Value)));
}

// The count is bounded, so a file of another kind does not ask for all memory.
template <class Value>
std::vector<Value> read(std::ifstream& file) {
  uint64_t count = 0;
  file.read(reinterpret_cast<char*>(&count), sizeof count);
  if (!file || count > (uint64_t{1} << 32)) throw std::runtime_error("the checkpoint is cut off, or is none");
  std::vector<Value> values(count);
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(count * sizeof(Value)));
  if (!file) throw std::runtime_error("the checkpoint is cut off");
  return values;
}

// The values of all ranks, in the order of ranks.
template <class Value>
std::vector<Value> gathered(rondo::Communicator& group, const std::vector<Value>& own) {
  std::vector<Value> everyone(own.size() * static_cast<size_t>(group.size()));
  group.all_gather(own, everyone);
  return everyone;
}

// Collective: all ranks return when rank 0 has written the file. On another rank than 0 nothing is written. Where rank
// 0 fails, the others end with its process.
inline void save(const std::string& path, uint64_t epochs, rondo::Communicator& group, rondo::DistOpt& optimizer,
                 const std::vector<float>& own_parameters, const std::vector<float>& own_velocity) {
  const rondo::DistOptState state = optimizer.save();
  const std::vector<float> parameters = gathered(group, own_parameters), velocity = gathered(group, own_velocity);
  if (group.rank() == 0) {
    std::ofstream file(path + ".new", std::ios::binary);
    write(file, std::vector<uint64_t>{epochs, state.steps, static_cast<uint64_t>(state.world)});
    write(file, parameters);
    write(file, velocity);
    for (const rondo::DistOptState::Tensor& tensor : state.tensors) {
      write(file, tensor.residuals);
      write(file, tensor.outer);
      write(file, tensor.momentum);
    }
    file.close();
    if (!file) throw std::runtime_error(path + ".new could not be written");
    std::filesystem::rename(path + ".new", path);  // a checkpoint is whole, or the one before
  }
  group.barrier();  // a launcher ends the other ranks when one has ended
}

// The mean of what `saved` ranks had, which is the value itself where they are equal.
inline std::vector<float> mean_of(const std::vector<float>& everyone, size_t saved) {
  const size_t count = everyone.size() / saved;
  std::vector<float> mean(count);
  for (size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (size_t r = 0; r < saved; ++r) sum += double{everyone[r * count + i]};
    mean[i] = static_cast<float>(sum / static_cast<double>(saved));
  }
  return mean;
}

// What this rank begins with: its own where ranks differ, and are as many as before.
inline std::vector<float> own_of(const std::vector<float>& everyone, size_t saved, const rondo::Communicator& group,
                                 rondo::Exchange exchange) {
  const bool differ = exchange == rondo::Exchange::kPartialUpdate || exchange == rondo::Exchange::kLocalSgd;
  if (!differ || saved != static_cast<size_t>(group.size())) return mean_of(everyone, saved);
  const auto count = static_cast<ptrdiff_t>(everyone.size() / saved), begin = group.rank() * count;
  return {everyone.begin() + begin, everyone.begin() + begin + count};
}

// Parameters, momentum and DistOpt's state. exchange: of the optimizer. Returns how many epochs are over. Every rank
// reads the same file.
inline uint64_t load(const std::string& path, rondo::Communicator& group, rondo::DistOpt& optimizer,
                     rondo::Exchange exchange, Network& network, MomentumSgd& sgd) {
  std::ifstream file(path, std::ios::binary);
  const auto numbers = read<uint64_t>(file);
  const size_t saved = numbers.size() == 3 ? static_cast<size_t>(numbers[2]) : 0;
  if (saved == 0) throw std::runtime_error(path + " is no checkpoint");
  const std::vector<float> parameters = own_of(read<float>(file), saved, group, exchange);
  const std::vector<float> velocity = own_of(read<float>(file), saved, group, exchange);
  if (parameters.size() != network.parameters.size() || velocity.size() != sgd.velocity.size()) {
    throw std::runtime_error(path + " is of another network");
  }
  std::copy(parameters.begin(), parameters.end(), network.parameters.begin());
  std::copy(velocity.begin(), velocity.end(), sgd.velocity.begin());
  rondo::DistOptState state;
  state.steps = numbers[1];
  state.world = static_cast<int>(saved);
  for (const Tensor& tensor : Network::kTensors) {
    state.tensors.push_back({tensor.name, read<float>(file), read<float>(file), read<float>(file)});
  }
  optimizer.load(state);
  return numbers[0];
}

}  // namespace mlp::checkpoint
