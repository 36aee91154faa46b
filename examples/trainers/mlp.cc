// A perceptron of one hidden layer on Fashion-MNIST, trained by rondo::DistOpt with every option.
//   rondo-run -n 2 mlp [--option int8] [--spars 0.05] [--epochs 2] [--images 60000] [--folder FOLDER]
// Every rank trains on its contiguous part, 64 images a step. cnn.py has checkpoints, too: here they would be made of
// DistOpt::save() and each rank's parameters and momentum.
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <system_error>
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
  uint64_t epochs = 2;
  size_t images = 60000;
  std::string folder = idx::kFolder;
};

// The whole text must be the number.
template <class Number>
Number number(const std::string& name, const std::string& value) {
  Number read{};
  const char* const end = value.data() + value.size();
  const auto [stop, code] = std::from_chars(value.data(), end, read);
  if (code != std::errc() || stop != end) throw std::invalid_argument(name + " " + value + " is no such number");
  return read;
}

// Throws std::invalid_argument. Every option has a value.
Arguments read_arguments(int argc, char** argv) {
  Arguments read;
  read.options.partition_bytes = 1 << 18;  // partialUpdate: two partitions; the network has 636 kB
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw std::invalid_argument(name + " needs a value");
    const std::string value = argv[i + 1];
    if (name == "--option") {
      const auto found = kOptions.find(value);
      if (found == kOptions.end()) throw std::invalid_argument("--option " + value + " is no option of DistOpt");
      read.options.exchange = found->second;
    } else if (name == "--spars") {
      read.options.spars = number<double>(name, value);
    } else if (name == "--epochs") {
      read.epochs = number<uint64_t>(name, value);
    } else if (name == "--images") {
      read.images = number<size_t>(name, value);
    } else if (name == "--folder") {
      read.folder = value;
    } else {
      throw std::invalid_argument(name + " is no option; there are --option, --spars, --epochs, --images and --folder");
    }
  }
  return read;
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
  // DistOpt calls it for each tensor whose exchange is over.
  const auto update = [&](const rondo::NamedGradient& g) {
    sgd.update(static_cast<size_t>(g.parameter - network.parameters.data()), {g.parameter, g.count},
               {g.gradient, g.count});
  };

  // Equal on all ranks, whose parts are equal: each step is a collective.
  const uint64_t steps = train.count() / mlp::kBatch;
  for (uint64_t epoch = 0; epoch < arguments.epochs; ++epoch) {
    for (uint64_t step = 0; step < steps; ++step) {
      network.backward(train, step * mlp::kBatch, mlp::kBatch, [&](const std::string& name) { optimizer.ready(name); });
      optimizer.step(update);
    }
    const mlp::Score trained = std::exchange(network.score, {});
    for (size_t at = 0; at + mlp::kBatch <= test.count(); at += mlp::kBatch) network.forward(test, at, mlp::kBatch);
    const mlp::Score tested = std::exchange(network.score, {});
    std::vector<double> sums = {trained.loss, trained.right, trained.seen, tested.right, tested.seen};
    group.all_reduce(sums);
    if (group.rank() > 0) continue;
    std::printf("Starting Epoch %d:\n", static_cast<int>(epoch));
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
