// A perceptron of one hidden layer on Fashion-MNIST, trained by rondo::DistOpt with every option.
//   rondo-run -n 2 mlp [--option int8] [--spars 0.05] [--epochs 2] [--images 60000] [--folder FOLDER] [--checkpoint
//   FILE]
// Every rank trains on its contiguous part, 64 images a step. --checkpoint: written after each epoch by rank 0, and
// read at the start if it is there: training goes on with the same bits, or with other ranks by the mean residuals.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rondo/dist_opt.h>

#include "mlp.h"

namespace {

const std::map<std::string, rondo::Exchange> kOptions = {
    {"fp32", rondo::Exchange::kFloat32},
    {"fp16", rondo::Exchange::kFloat16},
    {"bf16", rondo::Exchange::kBfloat16},
    {"int8", rondo::Exchange::kInt8},
    {"sparseTopK", rondo::Exchange::kSparseTopK},
    {"sparseThreshold", rondo::Exchange::kSparseThreshold},
    {"partialUpdate", rondo::Exchange::kPartialUpdate},
    {"localSGD", rondo::Exchange::kLocalSgd},
};

struct Arguments {
  rondo::DistOptOptions options;
  int epochs = 2;
  size_t images = 60000;
  std::string folder = idx::kFolder;
  std::string checkpoint;
};

Arguments read_arguments(int argc, char** argv) {
  Arguments read;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw std::invalid_argument(name + " needs a value");
    const std::string value = argv[i + 1];
    if (name == "--option") {
      const auto found = kOptions.find(value);
      if (found == kOptions.end()) throw std::invalid_argument("--option " + value + " is no option of DistOpt");
      read.options.exchange = found->second;
    } else if (name == "--spars") {
      read.options.spars = std::stod(value);
    } else if (name == "--epochs") {
      read.epochs = std::stoi(value);
    } else if (name == "--images") {
      read.images = std::stoul(value);
    } else if (name == "--folder") {
      read.folder = value;
    } else if (name == "--checkpoint") {
      read.checkpoint = value;
    } else {
      throw std::invalid_argument(
          name + " is no option; there are --option, --spars, --epochs, --images, --folder and --checkpoint");
    }
  }
  return read;
}

// --- A checkpoint: the next epoch, DistOpt's state, and parameters and momentum of every rank, which differ between
// ranks after partialUpdate and localSGD. Numbers as they are in memory.

struct Own {
  std::vector<float> parameters, velocity;
};

template <class Value>
void write(std::ofstream& file, const std::vector<Value>& values) {
  const uint64_t count = values.size();
  file.write(reinterpret_cast<const char*>(&count), sizeof count);
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(count * sizeof(Value)));
}

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

void save(const std::string& path, int epoch, rondo::Communicator& group, rondo::DistOpt& optimizer, const Own& own) {
  const rondo::DistOptState state = optimizer.save();
  const auto world = static_cast<size_t>(group.size());
  std::vector<float> parameters(own.parameters.size() * world), velocity(parameters.size());
  group.all_gather(own.parameters.data(), parameters.data(), own.parameters.size(), rondo::DType::kFloat32);
  group.all_gather(own.velocity.data(), velocity.data(), own.velocity.size(), rondo::DType::kFloat32);
  if (group.rank() > 0) return;
  std::ofstream file(path + ".new", std::ios::binary);
  write(file, std::vector<uint64_t>{static_cast<uint64_t>(epoch), state.steps, world});
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

// This rank's of what `saved` ranks had; the mean, for another number of ranks.
std::vector<float> own_of(const std::vector<float>& everyone, size_t saved, const rondo::Communicator& group) {
  const size_t count = everyone.size() / saved, rank = static_cast<size_t>(group.rank());
  std::vector<float> own(count);
  for (size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (size_t r = 0; r < saved; ++r) sum += double{everyone[r * count + i]};
    const bool same = saved == static_cast<size_t>(group.size());
    own[i] = same ? everyone[rank * count + i] : static_cast<float>(sum / static_cast<double>(saved));
  }
  return own;
}

int load(const std::string& path, rondo::Communicator& group, rondo::DistOpt& optimizer, mlp::Network& network,
         mlp::MomentumSgd& sgd) {
  std::ifstream file(path, std::ios::binary);
  const auto numbers = read<uint64_t>(file);
  if (numbers.size() != 3 || numbers[2] == 0) throw std::runtime_error(path + " is no checkpoint");
  const auto saved = static_cast<size_t>(numbers[2]);
  const std::vector<float> parameters = own_of(read<float>(file), saved, group);
  const std::vector<float> velocity = own_of(read<float>(file), saved, group);
  if (parameters.size() != network.parameters.size() || velocity.size() != sgd.velocity.size()) {
    throw std::runtime_error(path + " is of another network");
  }
  std::copy(parameters.begin(), parameters.end(), network.parameters.begin());
  std::copy(velocity.begin(), velocity.end(), sgd.velocity.begin());
  rondo::DistOptState state;
  state.steps = numbers[1];
  state.world = static_cast<int>(saved);
  for (const mlp::Tensor& tensor : mlp::Network::kTensors) {
    state.tensors.push_back({tensor.name, read<float>(file), read<float>(file), read<float>(file)});
  }
  optimizer.load(state);
  return static_cast<int>(numbers[0]);
}

void run(const Arguments& arguments) {
  rondo::Communicator group = rondo::Communicator::join();
  const idx::Images train = idx::load(arguments.folder, "train", arguments.images, group.rank(), group.size());
  const idx::Images test = idx::load(arguments.folder, "t10k", arguments.images, group.rank(), group.size());
  mlp::Network network(0);
  mlp::MomentumSgd sgd(mlp::kRate, mlp::kMomentum, mlp::Network::kSize);
  std::vector<rondo::NamedGradient> gradients;
  for (const mlp::Tensor& tensor : mlp::Network::kTensors) {
    gradients.push_back(
        {tensor.name, &network.parameters[tensor.begin], &network.gradient[tensor.begin], tensor.count});
  }
  rondo::DistOpt optimizer(group, gradients, arguments.options);
  const auto update = [&](const rondo::NamedGradient& g) {
    sgd.update(static_cast<size_t>(g.parameter - network.parameters.data()), {g.parameter, g.count},
               {g.gradient, g.count});
  };

  const bool resumes = !arguments.checkpoint.empty() && std::filesystem::exists(arguments.checkpoint);
  int epoch = resumes ? load(arguments.checkpoint, group, optimizer, network, sgd) : 0;
  for (; epoch < arguments.epochs; ++epoch) {
    for (size_t at = 0; at + mlp::kBatch <= train.count(); at += mlp::kBatch) {
      network.backward(train, at, mlp::kBatch, [&](const std::string& name) { optimizer.ready(name); });
      optimizer.step(update);
    }
    const mlp::Score trained = std::exchange(network.score, {});
    for (size_t at = 0; at + mlp::kBatch <= test.count(); at += mlp::kBatch) network.forward(test, at, mlp::kBatch);
    const mlp::Score tested = std::exchange(network.score, {});
    std::vector<double> sums = {trained.loss, trained.right, trained.seen, tested.right, tested.seen};
    group.all_reduce(sums);
    if (!arguments.checkpoint.empty()) {
      save(arguments.checkpoint, epoch + 1, group, optimizer, {network.parameters, sgd.velocity});
    }
    if (group.rank() > 0) continue;
    std::printf("Starting Epoch %d:\n", epoch);
    std::printf("Training loss = %f, training accuracy = %f\n", sums[0], sums[1] / sums[2]);
    std::printf("Evaluation accuracy = %f\n", sums[3] / sums[4]);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(read_arguments(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mlp: %s\n", error.what());
    return 1;
  }
}
