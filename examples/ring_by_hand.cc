// The ring all_reduce, written with send and receive only, and compared with all_reduce.
//   rondo-run -n 4 bazel-bin/examples/ring_by_hand
//
// The buffer is cut into one chunk a rank. Reduce-scatter: in each of size - 1 steps a rank sends one chunk to the next
// rank, receives one from the previous rank, and adds it to its own; afterwards rank r holds the sum of chunk r + 1.
// All-gather: in size - 1 more steps the sums travel once round the ring.
#include <algorithm>
#include <cstdio>
#include <span>
#include <vector>

#include <rondo/communicator.h>

namespace {

using Chunk = std::span<double>;

// Chunk `index` (modulo size) of the buffer; the first chunks are one longer where the count does not divide evenly.
Chunk chunk_of(std::span<double> buffer, int index, int size) {
  const size_t i = static_cast<size_t>((index % size + size) % size), n = static_cast<size_t>(size);
  const size_t begin = i * (buffer.size() / n) + std::min(i, buffer.size() % n);
  return buffer.subspan(begin, buffer.size() / n + (i < buffer.size() % n ? 1 : 0));
}

void ring_all_reduce(rondo::Communicator& group, std::span<double> buffer) {
  const int rank = group.rank(), size = group.size();
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  const auto exchange = [&](Chunk out, Chunk in) {
    group.sendrecv(out.data(), out.size(), next, in.data(), in.size(), previous, rondo::DType::kFloat64);
  };

  std::vector<double> received(buffer.size());
  for (int step = 0; step < size - 1; ++step) {
    const Chunk own = chunk_of(buffer, rank - step - 1, size);
    const Chunk in = Chunk(received).first(own.size());
    exchange(chunk_of(buffer, rank - step, size), in);
    for (size_t i = 0; i < own.size(); ++i) own[i] += in[i];
  }
  for (int step = 0; step < size - 1; ++step) {
    exchange(chunk_of(buffer, rank + 1 - step, size), chunk_of(buffer, rank - step, size));
  }
}

}  // namespace

int main() {
  try {
    rondo::Communicator group = rondo::Communicator::join();
    for (const size_t count : {size_t{0}, size_t{1}, size_t{3}, size_t{100'003}}) {
      std::vector<double> by_hand(count);
      for (size_t i = 0; i < count; ++i) by_hand[i] = static_cast<double>(group.rank() + 1) * static_cast<double>(i);
      std::vector<double> by_rondo = by_hand;
      ring_all_reduce(group, by_hand);
      group.all_reduce(by_rondo);
      if (by_hand != by_rondo) return std::fprintf(stderr, "%zu elements: the sums differ\n", count), 1;
    }
    std::printf("rank %d of %d: the ring by hand and all_reduce agree\n", group.rank(), group.size());
    return 0;
  } catch (const rondo::Exception& error) {
    std::fprintf(stderr, "%s: %s\n", rondo::error_code_name(error.code()), error.what());
    return 1;
  }
}
