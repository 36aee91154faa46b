// Tries a target's inputs without libFuzzer: its seeds and the files of found/NAME, then each of them cut at every byte
// and with every byte changed, for two seconds at most.
//   NAME_test [FILE ...]
//   NAME_test --write FOLDER   writes the seeds, as a corpus for libFuzzer
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "ring/base/file_text.h"
#include "tests/fuzz/target.h"

namespace rondo::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTime{2};  // 16 targets in half a minute
// Bits that change a length, a sign, a kind and a flag.
constexpr unsigned char kChanges[] = {0x01, 0x04, 0x10, 0x80, 0xff};

std::string contents_of(const char* path) {
  RONDO_CHECK(std::filesystem::exists(path), "an input that is there");
  return file_text(path);
}

// Tried before it runs out of time; false: it did.
class Variants {
 public:
  explicit Variants(Clock::time_point end) : end_(end) {}

  bool try_all(const std::string& input) {
    for (size_t bytes = 0; bytes < input.size(); ++bytes) {
      if (!attempt(std::string_view(input).substr(0, bytes))) return false;
    }
    for (size_t at = 0; at < input.size(); ++at) {
      for (const unsigned char change : kChanges) {
        std::string changed = input;
        changed[at] = static_cast<char>(static_cast<unsigned char>(changed[at]) ^ change);
        if (!attempt(changed)) return false;
      }
    }
    return true;
  }
  int tried() const { return tried_; }

 private:
  bool attempt(std::string_view input) {
    if (Clock::now() > end_) return false;
    try_input(input);
    ++tried_;
    return true;
  }
  const Clock::time_point end_;
  int tried_ = 0;
};

int replay(const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) try_input(input);
  try_input({});
  Variants variants(Clock::now() + kTime);
  bool all = true;
  for (const std::string& input : inputs) all = all && variants.try_all(input);
  std::printf("%zu inputs, %d variants%s\n", inputs.size(), variants.tried(), all ? "" : ", until time ran out");
  return 0;
}

int write(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const std::vector<std::string> inputs = seeds();
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::ofstream file(folder / ("seed-" + std::to_string(i)), std::ios::binary);
    file.write(inputs[i].data(), static_cast<std::streamsize>(inputs[i].size()));
    if (!file.flush()) return std::perror(folder.c_str()), 1;
  }
  return 0;
}

}  // namespace
}  // namespace rondo::fuzz

int main(int argc, char** argv) {
  using namespace rondo::fuzz;
  if (argc == 3 && std::string_view(argv[1]) == "--write") return write(argv[2]);
  std::vector<std::string> inputs = seeds();
  for (int i = 1; i < argc; ++i) inputs.push_back(contents_of(argv[i]));
  return replay(inputs);
}
