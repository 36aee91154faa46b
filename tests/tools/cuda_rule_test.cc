// Proves the rule cuda_library: the object that nvcc made is linked into this very binary, whose fat binary section
// must hold machine code for sm_80 and sm_90, and PTX of compute_90.
#include <doctest/doctest.h>
#include <elf.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/tools/vector_add.h"

namespace {

enum Kind : uint16_t { kPtx = 1, kMachineCode = 2 };
using Entry = std::pair<uint16_t, uint32_t>;  // kind, architecture (90 for sm_90)

template <typename T>
T load(const std::string& bytes, size_t offset) {
  T value;
  REQUIRE(offset + sizeof(T) <= bytes.size());
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// The bytes of the named section of the running program.
std::string own_section(const std::string& wanted) {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string elf((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto header = load<Elf64_Ehdr>(elf, 0);
  const auto names = load<Elf64_Shdr>(elf, header.e_shoff + header.e_shstrndx * sizeof(Elf64_Shdr));
  for (size_t i = 0; i < header.e_shnum; ++i) {
    const auto section = load<Elf64_Shdr>(elf, header.e_shoff + i * sizeof(Elf64_Shdr));
    if (wanted == elf.c_str() + names.sh_offset + section.sh_name)
      return elf.substr(section.sh_offset, section.sh_size);
  }
  return "";
}

// A fat binary is a header {magic u32, version u16, header bytes u16, payload bytes u64}, then entries
// {kind u16, version u16, header bytes u32, payload bytes u64, ..., architecture u32 at byte 28}; containers follow one
// another at multiples of 8 bytes. (Read off the output of nvcc 12 and 13.)
std::set<Entry> fat_binary_entries(const std::string& section) {
  constexpr uint32_t kMagic = 0xBA55ED50;
  std::set<Entry> entries;
  for (size_t at = 0; at + 16 <= section.size();) {
    if (load<uint32_t>(section, at) != kMagic) {
      at += 8;
      continue;
    }
    const size_t end = at + load<uint16_t>(section, at + 6) + load<uint64_t>(section, at + 8);
    REQUIRE(end <= section.size());
    for (at += load<uint16_t>(section, at + 6); at < end;) {
      entries.emplace(load<uint16_t>(section, at), load<uint32_t>(section, at + 28));
      at += load<uint32_t>(section, at + 4) + load<uint64_t>(section, at + 8);
    }
  }
  return entries;
}

}  // namespace

TEST_CASE("a cuda_library carries code for every promised architecture") {
  const auto entries = fat_binary_entries(own_section(".nv_fatbin"));
  CHECK(entries.count({kMachineCode, 80}) == 1);
  CHECK(entries.count({kMachineCode, 90}) == 1);
  CHECK(entries.count({kPtx, 90}) == 1);
}

TEST_CASE("a cuda_library links: without a device its launch reports an error instead of crashing") {
  // On a machine with a device the launch itself succeeds (count 0 would be an invalid grid, so ask for one element of
  // nothing only where there is no device to touch it).
  std::ifstream device("/dev/nvidiactl");
  if (device.good()) return;
  CHECK(vector_add(nullptr, nullptr, nullptr, 1) != 0);
}
