// A perceptron of one hidden layer on Fashion-MNIST, trained by rondo::DistOpt with every option.
//   rondo-run -n 2 mlp [--option int8] [--spars 0.05] [--epochs 2] [--images 60000] [--folder FOLDER] [--checkpoint
//   FILE]
// Every rank trains on its contiguous part, 64 images a step. --checkpoint: written by rank 0 after each epoch, and
// read at the start if it is there. Training goes on with the same bits, or with other ranks by the mean residuals.
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <rondo/dist_opt.h>

#include "checkpoint.h"
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
  std::string checkpoint;
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
    } else if (name == "--checkpoint") {
      read.checkpoint = value;
    } else {
      throw std::invalid_argument(
          name + " is no option; there are --option, --spars, --epochs, --images, --folder and --checkpoint");
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
  const std::string& file = arguments.checkpoint;
  uint64_t epoch = 0;
  if (!file.empty() && std::filesystem::exists(file)) {
    epoch = mlp::checkpoint::load(file, group, optimizer, arguments.options.exchange, network, sgd);
  }
  for (; epoch < arguments.epochs; ++epoch) {
    for (uint64_t step = 0; step < steps; ++step) {
      network.backward(train, step * mlp::kBatch, mlp::kBatch, [&](const std::string& name) { optimizer.ready(name); });
      optimizer.step(update);
    }
    const mlp::Score trained = std::exchange(network.score, {});
    for (size_t at = 0; at + mlp::kBatch <= test.count(); at += mlp::kBatch) network.forward(test, at, mlp::kBatch);
    const mlp::Score tested = std::exchange(network.score, {});
    std::vector<double> sums = {trained.loss, trained.right, trained.seen, tested.right, tested.seen};
    group.all_reduce(sums);
    if (!file.empty()) {
      mlp::checkpoint::save(file, epoch + 1, group, optimizer, network.parameters, sgd.velocity);
    }
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
