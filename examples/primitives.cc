// Every primitive on two numbers a rank: rank r starts with [1 + 2r, 2 + 2r]. examples/python/primitives.py prints the
// same.
//   rondo-run -n 4 bazel-bin/examples/primitives
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <rondo/communicator.h>

namespace {

using rondo::Communicator;
using rondo::DType;
using rondo::Op;
using Numbers = std::vector<int64_t>;

Numbers start(const Communicator& group) { return {1 + 2 * group.rank(), 2 + 2 * group.rank()}; }

// 0, 1, ... size - 1, each plus `first`.
Numbers count_from(int64_t first, const Communicator& group) {
  Numbers numbers;
  for (int r = 0; r < group.size(); ++r) numbers.push_back(first + r);
  return numbers;
}

void print(const Communicator& group, const char* name, const Numbers& numbers) {
  std::string shown;
  for (const int64_t number : numbers) shown += (shown.empty() ? "" : " ") + std::to_string(number);
  std::printf("%s: rank %d has %s\n", name, group.rank(), shown.empty() ? "-" : shown.c_str());
}

// Ranks 0 and 1 play ping-pong; each adds 1.
Numbers send_recv(Communicator& group) {
  Numbers x{0};
  if (group.rank() == 0) {
    x[0] += 1;
    group.send(x.data(), 1, DType::kInt64, 1);
    group.recv(x.data(), 1, DType::kInt64, 1);
  } else if (group.rank() == 1) {
    group.recv(x.data(), 1, DType::kInt64, 0);
    x[0] += 1;
    group.send(x.data(), 1, DType::kInt64, 0);
  }
  return x;
}

// Two messages, received by tag in the other order.
Numbers send_async_recv_async(Communicator& group) {
  Numbers x{0, 0};
  const Numbers sent{10, 20};
  std::vector<rondo::Work> works;
  for (int i = 0; i < 2; ++i) {
    if (group.rank() == 0) works.push_back(group.send_async(&sent[i], 1, DType::kInt64, 1, i + 1));
    if (group.rank() == 1) works.push_back(group.recv_async(&x[1 - i], 1, DType::kInt64, 0, 2 - i));
  }
  for (rondo::Work& work : works) work.wait();
  return x;
}

Numbers broadcast(Communicator& group) {
  Numbers x = start(group);
  group.broadcast(x.data(), 2, DType::kInt64, 0);
  return x;
}

Numbers scatter(Communicator& group) {
  Numbers rows, own(2);
  for (int r = 0; r < group.size(); ++r) rows.insert(rows.end(), 2, r);
  group.scatter(rows.data(), own.data(), 2, DType::kInt64, 0);
  return own;
}

Numbers gather(Communicator& group) {
  Numbers all(group.rank() == 0 ? 2 * group.size() : 0);
  group.gather(start(group).data(), all.data(), 2, DType::kInt64, 0);
  return all;
}

Numbers reduce(Communicator& group) {
  const int root = group.size() - 1;
  Numbers sum(group.rank() == root ? 2 : 0);
  group.reduce(start(group).data(), sum.data(), 2, DType::kInt64, Op::kSum, root);
  return sum;
}

Numbers all_gather(Communicator& group) {
  Numbers all(2 * group.size());
  group.all_gather(start(group).data(), all.data(), 2, DType::kInt64);
  return all;
}

Numbers all_reduce(Communicator& group, Op op) {
  Numbers x = start(group);
  group.all_reduce(x.data(), x.data(), 2, DType::kInt64, op);
  return x;
}

Numbers reduce_scatter(Communicator& group) {
  Numbers own(1);
  group.reduce_scatter(count_from(group.rank(), group).data(), own.data(), 1, DType::kInt64);
  return own;
}

Numbers all_to_all(Communicator& group) {
  Numbers received(group.size());
  group.all_to_all(count_from(10 * group.rank(), group).data(), received.data(), 1, DType::kInt64);
  return received;
}

// Rank r contributes r numbers.
Numbers all_gather_v(Communicator& group) {
  std::vector<uint64_t> counts;
  uint64_t total = 0;
  for (int r = 0; r < group.size(); ++r) total += counts.emplace_back(r);
  const Numbers own(group.rank(), group.rank());
  Numbers all(total);
  group.all_gather_v(own.data(), all.data(), counts, {}, DType::kInt64);
  return all;
}

// Ones, added up by ranks 0 and 1 only.
Numbers new_group(Communicator& group) {
  Numbers ones{1, 1};
  if (group.rank() < 2) {
    const std::array<int, 2> ranks{0, 1};
    Communicator pair = group.new_group(ranks);
    pair.all_reduce(ones.data(), ones.data(), 2, DType::kInt64);
  }
  return ones;
}

Numbers all_reduce_async(Communicator& group) {
  Numbers x = start(group);
  rondo::Work work = group.all_reduce_async(x.data(), x.data(), 2, DType::kInt64);
  work.wait();
  return x;
}

Numbers barrier(Communicator& group) {
  group.barrier();
  return {};
}

}  // namespace

int main() {
  try {
    Communicator group = Communicator::join();
    print(group, "send_recv", send_recv(group));
    print(group, "isend_irecv", send_async_recv_async(group));
    print(group, "broadcast", broadcast(group));
    print(group, "scatter", scatter(group));
    print(group, "gather", gather(group));
    print(group, "reduce", reduce(group));
    print(group, "all_gather", all_gather(group));
    print(group, "all_reduce_sum", all_reduce(group, Op::kSum));
    print(group, "all_reduce_product", all_reduce(group, Op::kProduct));
    print(group, "all_reduce_max", all_reduce(group, Op::kMax));
    print(group, "all_reduce_min", all_reduce(group, Op::kMin));
    print(group, "reduce_scatter", reduce_scatter(group));
    print(group, "all_to_all", all_to_all(group));
    print(group, "all_gather_v", all_gather_v(group));
    print(group, "new_group", new_group(group));
    print(group, "async_op", all_reduce_async(group));
    print(group, "barrier", barrier(group));
    return 0;
  } catch (const rondo::Exception& error) {
    std::fprintf(stderr, "%s: %s\n", rondo::error_code_name(error.code()), error.what());
    return 1;
  }
}
