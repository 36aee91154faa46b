// A perceptron of one hidden layer on Fashion-MNIST, trained by rondo::DistOpt with every option.
//   rondo-run -n 2 mlp [--option int8] [--spars 0.05] [--epochs 2] [--images 60000] [--folder FOLDER] [--checkpoint
//   FILE]
// Every rank trains on its contiguous part, 64 images a step. --checkpoint: written by rank 0 after each epoch, and
// when Ctrl-C or SIGTERM ends the training after the step under way; read at the start if it is there. Training goes on
// with the same bits, or with other ranks near the same image, by the mean residuals.
#include <algorithm>
#include <charconv>
#include <csignal>
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
  uint64_t epochs = 2;
  size_t images = 60000;
  std::string folder = idx::kFolder;
  std::string checkpoint;
};

template <class Number>
Number number(const std::string& name, const std::string& value) {
  Number read{};
  const char* const end = value.data() + value.size();
  const auto [stop, code] = std::from_chars(value.data(), end, read);
  if (code != std::errc() || stop != end) throw std::invalid_argument(name + " " + value + " is no such number");
  return read;
}

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

volatile std::sig_atomic_t stop_asked = 0;

// Ctrl-C or SIGTERM; a second one ends the process at once.
void ask_to_stop(int signal) {
  stop_asked = 1;
  std::signal(signal, SIG_DFL);
}

bool some_rank_stops(rondo::Communicator& group) {
  int32_t stops = stop_asked;
  group.all_reduce(&stops, &stops, 1, rondo::DType::kInt32, rondo::Op::kMax);
  return stops != 0;
}

// --- A checkpoint: how far training has come, DistOpt's state, and parameters and momentum of every rank, which differ
// between ranks after partialUpdate and localSGD. Numbers as they are in memory.

struct Progress {
  uint64_t epoch = 0, step = 0;  // the next ones
  mlp::Score score;              // of this rank in the epoch
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

// Of all ranks, one after the other.
template <class Value>
std::vector<Value> gathered(rondo::Communicator& group, const std::vector<Value>& own) {
  std::vector<Value> everyone(own.size() * static_cast<size_t>(group.size()));
  group.all_gather(own, everyone);
  return everyone;
}

void save(const std::string& path, const Progress& progress, rondo::Communicator& group, rondo::DistOpt& optimizer,
          const std::vector<float>& own_parameters, const std::vector<float>& own_velocity) {
  const rondo::DistOptState state = optimizer.save();
  const auto scores = gathered<double>(group, {progress.score.loss, progress.score.right, progress.score.seen});
  const std::vector<float> parameters = gathered(group, own_parameters), velocity = gathered(group, own_velocity);
  if (group.rank() > 0) return;
  std::ofstream file(path + ".new", std::ios::binary);
  write(file, std::vector<uint64_t>{progress.epoch, progress.step, state.steps, static_cast<uint64_t>(state.world)});
  write(file, scores);
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

// With another number of ranks: near the same image; rank 0 takes the score of all.
Progress progress_of(const std::vector<uint64_t>& numbers, const std::vector<double>& scores,
                     const rondo::Communicator& group, uint64_t steps) {
  const uint64_t saved = scores.size() / 3, world = static_cast<uint64_t>(group.size());
  const bool same = saved == world;
  Progress progress{numbers[0], same ? numbers[1] : std::min(numbers[1] * saved / world, steps), {}};
  for (uint64_t r = 0; r < saved; ++r) {
    if (static_cast<uint64_t>(group.rank()) != (same ? r : 0)) continue;
    progress.score.loss += scores[3 * r];
    progress.score.right += scores[3 * r + 1];
    progress.score.seen += scores[3 * r + 2];
  }
  return progress;
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

// steps: of an epoch.
Progress load(const std::string& path, rondo::Communicator& group, rondo::DistOpt& optimizer, mlp::Network& network,
              mlp::MomentumSgd& sgd, uint64_t steps) {
  std::ifstream file(path, std::ios::binary);
  const auto numbers = read<uint64_t>(file);
  const auto scores = read<double>(file);
  const size_t saved = numbers.size() == 4 ? static_cast<size_t>(numbers[3]) : 0;
  if (saved == 0 || scores.size() != 3 * saved) throw std::runtime_error(path + " is no checkpoint");
  const std::vector<float> parameters = own_of(read<float>(file), saved, group);
  const std::vector<float> velocity = own_of(read<float>(file), saved, group);
  if (parameters.size() != network.parameters.size() || velocity.size() != sgd.velocity.size()) {
    throw std::runtime_error(path + " is of another network");
  }
  std::copy(parameters.begin(), parameters.end(), network.parameters.begin());
  std::copy(velocity.begin(), velocity.end(), sgd.velocity.begin());
  rondo::DistOptState state;
  state.steps = numbers[2];
  state.world = static_cast<int>(saved);
  for (const mlp::Tensor& tensor : mlp::Network::kTensors) {
    state.tensors.push_back({tensor.name, read<float>(file), read<float>(file), read<float>(file)});
  }
  optimizer.load(state);
  return progress_of(numbers, scores, group, steps);
}

// The exit status: 130 where a signal has ended the training.
int run(const Arguments& arguments) {
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

  const uint64_t steps = train.count() / mlp::kBatch;
  const bool keeps = !arguments.checkpoint.empty(), resumes = keeps && std::filesystem::exists(arguments.checkpoint);
  Progress progress;
  if (resumes) progress = load(arguments.checkpoint, group, optimizer, network, sgd, steps);
  network.score = progress.score;
  const auto save_at = [&](const Progress& next) {
    if (!keeps) return;
    save(arguments.checkpoint, next, group, optimizer, network.parameters, sgd.velocity);
    group.barrier();  // a rank that ends makes its launcher end the one that writes
  };
  std::signal(SIGINT, ask_to_stop);
  std::signal(SIGTERM, ask_to_stop);
  for (uint64_t epoch = progress.epoch; epoch < arguments.epochs; ++epoch) {
    for (uint64_t step = epoch == progress.epoch ? progress.step : 0; step < steps; ++step) {
      if (some_rank_stops(group)) {
        save_at({epoch, step, network.score});
        return 130;
      }
      network.backward(train, step * mlp::kBatch, mlp::kBatch, [&](const std::string& name) { optimizer.ready(name); });
      optimizer.step(update);
    }
    const mlp::Score trained = std::exchange(network.score, {});
    for (size_t at = 0; at + mlp::kBatch <= test.count(); at += mlp::kBatch) network.forward(test, at, mlp::kBatch);
    const mlp::Score tested = std::exchange(network.score, {});
    std::vector<double> sums = {trained.loss, trained.right, trained.seen, tested.right, tested.seen};
    group.all_reduce(sums);
    save_at({epoch + 1, 0, {}});
    if (group.rank() > 0) continue;
    std::printf("Starting Epoch %d:\n", static_cast<int>(epoch));
    std::printf("Training loss = %f, training accuracy = %f\n", sums[0], sums[1] / sums[2]);
    std::printf("Evaluation accuracy = %f\n", sums[3] / sums[4]);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(read_arguments(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mlp: %s\n", error.what());
    return 1;
  }
}
