// Images and labels in MNIST's IDX format, plain or with .gz at the end of their names.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace idx {

// What Debian's dataset-fashion-mnist installs.
inline constexpr const char* kFolder = "/usr/share/datasets/fashion-mnist";

// The bytes of one file, without its header: count bytes of `each`. gzip unpacks, so the example needs no library for
// it.
inline std::vector<uint8_t> read(const std::string& path, size_t each) {
  const bool plain = std::filesystem::exists(path);
  if (!plain && !std::filesystem::exists(path + ".gz")) {
    throw std::runtime_error(path + " is missing: apt-get install dataset-fashion-mnist, or name a folder of MNIST's");
  }
  if (path.find('\'') != std::string::npos) throw std::runtime_error(path + ": a folder's name has no quotes here");
  const std::string command = plain ? "cat '" + path + "'" : "gzip -dc '" + path + ".gz'";
  FILE* file = popen(command.c_str(), "r");
  if (file == nullptr) throw std::runtime_error(command + " did not start");
  std::vector<uint8_t> bytes;
  uint8_t block[1 << 16];
  for (size_t got = 1; got > 0;) {
    got = fread(block, 1, sizeof block, file);
    bytes.insert(bytes.end(), block, block + got);
  }
  const int status = pclose(file);
  // Byte 2 says that items are bytes, byte 3 how many dimensions the header lists, 4 bytes each.
  const size_t header = bytes.size() < 4 ? 4 : 4 + 4 * size_t{bytes[3]};
  if (status != 0 || bytes.size() < header || bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8 ||
      (bytes.size() - header) % each != 0) {
    throw std::runtime_error(path + " is no IDX file of bytes, " + std::to_string(each) + " an item");
  }
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(header));
  return bytes;
}

inline constexpr size_t kPixels = 28 * 28;

struct Images {
  std::vector<float> pixels;  // kPixels an image, 0 to 1
  std::vector<uint8_t> labels;
  size_t count() const { return labels.size(); }
};

// The rank-th of `world` equal, contiguous parts of the first `most` images; part: "train" or "t10k". Images that are
// left over by the division belong to no rank.
inline Images load(const std::string& folder, const std::string& part, size_t most, int rank, int world) {
  const std::vector<uint8_t> pixels = read(folder + "/" + part + "-images-idx3-ubyte", kPixels);
  const std::vector<uint8_t> labels = read(folder + "/" + part + "-labels-idx1-ubyte", 1);
  if (pixels.size() != labels.size() * kPixels) throw std::runtime_error(folder + " has other labels than images");
  const size_t each = std::min(most, labels.size()) / static_cast<size_t>(world);
  const size_t begin = each * static_cast<size_t>(rank);
  Images images;
  for (size_t i = begin * kPixels; i < (begin + each) * kPixels; ++i) {
    images.pixels.push_back(static_cast<float>(pixels[i]) / 255.0f);
  }
  images.labels.assign(labels.begin() + static_cast<ptrdiff_t>(begin),
                       labels.begin() + static_cast<ptrdiff_t>(begin + each));
  return images;
}

}  // namespace idx
