// What a user sees when a program is wrong or a rank goes missing:
//   rondo-run -n 4 bazel-bin/tests/faults/misuse count
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "rondo/communicator.h"

namespace {

using rondo::Communicator;
using rondo::DType;
using rondo::Op;

constexpr int kOdd = 2;  // the rank that does something else, in a world of at least three
constexpr uint64_t kCount = 1 << 20;

struct Misuse {
  const char* says;
  std::function<void(Communicator&, bool odd)> run;
};

void reduce(Communicator& group, uint64_t count, DType dtype = DType::kFloat32, Op op = Op::kSum) {
  std::vector<double> values(count, 1);
  group.all_reduce(values.data(), values.data(), count, dtype, op);
}

void broadcast(Communicator& group, int root) {
  std::vector<float> values(kCount);
  group.broadcast(values.data(), kCount, DType::kFloat32, root);
}

[[noreturn]] void forever() {
  while (true) ::pause();
}

const std::map<std::string, Misuse>& misuses() {
  static const std::map<std::string, Misuse> all{
      {"none", {"nothing is wrong", [](Communicator& group, bool) { reduce(group, kCount); }}},
      {"count", {"another count", [](Communicator& group, bool odd) { reduce(group, odd ? kCount / 2 : kCount); }}},
      {"small-count", {"another count, both small", [](Communicator& group, bool odd) { reduce(group, odd ? 7 : 8); }}},
      {"dtype",
       {"another dtype",
        [](Communicator& group, bool odd) { reduce(group, kCount, odd ? DType::kInt32 : DType::kFloat32); }}},
      {"op",
       {"another op",
        [](Communicator& group, bool odd) { reduce(group, kCount, DType::kFloat32, odd ? Op::kMax : Op::kSum); }}},
      {"root", {"another root", [](Communicator& group, bool odd) { broadcast(group, odd ? 1 : 0); }}},
      {"order",
       {"a barrier where the others reduce",
        [](Communicator& group, bool odd) { odd ? group.barrier() : reduce(group, kCount); }}},
      {"recv",
       {"a receive where the others reduce",
        [](Communicator& group, bool odd) {
          float value = 0;
          odd ? static_cast<void>(group.recv(&value, 1, DType::kFloat32, 0)) : reduce(group, kCount);
        }}},
      {"kill",
       {"killed while the others work",
        [](Communicator& group, bool odd) {
          for (int i = 0; i < 1'000'000; ++i) {
            if (odd && i == 20) ::raise(SIGKILL);
            reduce(group, kCount);
          }
        }}},
      {"exit", {"returns early", [](Communicator& group, bool odd) { odd ? void() : reduce(group, kCount); }}},
      {"absent",
       {"never makes the call", [](Communicator& group, bool odd) { odd ? forever() : reduce(group, kCount); }}},
      {"sleep", {"all sleep", [](Communicator&, bool) { forever(); }}},
  };
  return all;
}

int usage() {
  std::fprintf(stderr, "usage: misuse WHAT; rank %d then makes this mistake:\n", kOdd);
  for (const auto& [name, misuse] : misuses()) std::fprintf(stderr, "  %-12s %s\n", name.c_str(), misuse.says);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const auto found = misuses().find(argc == 2 ? argv[1] : "");
  if (found == misuses().end()) return usage();
  try {
    Communicator group = Communicator::join();
    found->second.run(group, group.rank() == kOdd);
    return 0;
  } catch (const rondo::Exception& error) {
    std::fprintf(stderr, "%s: %s\n", rondo::error_code_name(error.code()), error.what());
    return 1;
  }
}
