#include "tests/life/rank.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/random.h"

namespace rondo::life {
namespace {

// Writes random bytes into what this process shares with others, until told to stop.
void scribble(uint64_t seed, const std::atomic<bool>& stop) {
  std::vector<std::pair<uintptr_t, uintptr_t>> shared;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    char rights[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, rights) != 3 || std::string(rights) != "rw-s") continue;
    if (line.find("memfd") != std::string::npos || line.find("/dev/shm") != std::string::npos)
      shared.push_back({begin, end});
  }
  testing::Random random(seed);
  while (!stop.load() && !shared.empty()) {
    const auto [begin, end] = shared[random.below(shared.size())];
    // Most of what steers lies at the beginning.
    const uint64_t size = random.chance(50) ? std::min<uint64_t>(end - begin, 4096) : end - begin;
    auto* at = reinterpret_cast<volatile unsigned char*>(begin + random.below(size - 64));
    const uint64_t bytes = random.between(1, 16);
    for (uint64_t i = 0; i < bytes; ++i) at[i] = static_cast<unsigned char>(random.chance(30) ? 0xff : random.next());
    std::this_thread::yield();
  }
}

// Random bytes into every socket.
void babble(uint64_t seed) {
  testing::Random random(seed);
  for (int file = 3; file < 200; ++file) {
    unsigned char bytes[64];
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random.next());
    [[maybe_unused]] const ssize_t sent =
        ::send(file, bytes, random.between(1, sizeof bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

// What a rank says of its selection in a sparse all_reduce, (selected, not finite, count), of numbers that wrap; and
// what it sends of it.
Error lie(testing::Random& random, Group& group, int members, int me) {
  const uint64_t numbers[] = {uint64_t{1} << 63, UINT64_MAX, 0, 1, 4000, 4001, uint64_t{1} << 62, uint64_t{1} << 32};
  const uint64_t header[3] = {numbers[random.below(8)], random.below(3), 4000};
  std::vector<uint64_t> all(3 * static_cast<size_t>(members));
  Call call;
  call.options.purpose = Purpose::kSparse;
  call.verb = Verb::kAllGather;
  call.in = header;
  call.out = all.data();
  call.count = 3;
  call.dtype = DType::kUint64;
  if (Error error = group.run(call); !error.ok()) return error;
  std::vector<uint32_t> words(100), output(10000);
  call.verb = Verb::kAllGatherV;
  call.in = words.data();
  call.out = output.data();
  call.dtype = DType::kUint32;
  call.counts.assign(static_cast<size_t>(members), 2 * 40);
  call.counts[static_cast<size_t>(me)] = 2 * (header[0] & 15);
  return group.run(call);
}

}  // namespace

void Thread::hostile(const Step& step, Member& member) {
  if (member.size() < 2) return;
  finish_all();
  const std::string what = step.word("what");
  const auto salt = static_cast<uint64_t>(step.number("salt"));
  const auto calls = static_cast<int>(step.number("times", 20));
  testing::Random random(salt);
  std::vector<float> values(4000, 1);
  const bool is_hostile = member.me == static_cast<int>(step.number("by")) % member.size();
  std::atomic<bool> stop{false};
  std::thread scribbler;
  // Nobody is in the lines before when the rubbish comes.
  Error error = member.group->run(Call{});
  if (is_hostile && what == "memory") scribbler = std::thread([&] { scribble(salt, stop); });
  for (int i = 0; i < calls && error.ok(); ++i) {
    Call call;
    call.verb = Verb::kAllReduce;
    call.in = call.out = values.data();
    call.count = values.size();
    if (is_hostile && what == "sockets" && i == calls / 2) babble(salt);
    if (what != "sparse") {
      error = member.group->run(call);
    } else if (!is_hostile) {
      SparseOptions options;
      options.spars = 0.01;
      error = member.group->sparse(values.data(), values.data(), values.size(), options);
    } else {
      error = lie(random, *member.group, member.size(), member.me);
    }
  }
  stop.store(true);
  if (scribbler.joinable()) scribbler.join();
  // It is gone now, as far as the others can see; they need not be right, but must end.
  if (is_hostile && life_.ranks == Ranks::kProcesses) ::_exit(0);
  throw Over("");
}

}  // namespace rondo::life
