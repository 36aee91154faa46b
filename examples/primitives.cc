// Every collective on two numbers a rank: rank r starts with [1 + 2r, 2 + 2r]. examples/python/primitives.py prints the
// same.
//   rondo-run -n 4 bazel-bin/examples/primitives [NAME ...]
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include <rondo/communicator.h>

namespace {

using rondo::Communicator;
using rondo::DType;
using rondo::Op;
using Numbers = std::vector<int64_t>;

Numbers start(const Communicator& group) { return {1 + 2 * group.rank(), 2 + 2 * group.rank()}; }

// `count` numbers from `first` on.
Numbers count_from(int64_t first, size_t count) {
  Numbers numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

Numbers broadcast(Communicator& group) {
  Numbers x = start(group);
  group.broadcast(x, 0);
  return x;
}

Numbers scatter(Communicator& group) {
  Numbers rows, own(2);
  for (int r = 0; r < group.size(); ++r) rows.insert(rows.end(), 2, r);
  group.scatter(rows, own, 0);
  return own;
}

// On rank 0; the others keep what they have.
Numbers gather(Communicator& group) {
  const Numbers x = start(group);
  Numbers rows(group.rank() == 0 ? 2 * group.size() : 0);
  group.gather(x, rows, 0);
  return group.rank() == 0 ? rows : x;
}

// On the last rank; the others keep what they have.
Numbers reduce(Communicator& group) {
  Numbers x = start(group);
  group.reduce(x, x, Op::kSum, group.size() - 1);
  return x;
}

Numbers all_gather(Communicator& group) {
  Numbers all(2 * group.size());
  group.all_gather(start(group), all);
  return all;
}

template <Op kOp>
Numbers all_reduce(Communicator& group) {
  Numbers x = start(group);
  group.all_reduce(x, kOp);
  return x;
}

// Two arrays in one call.
Numbers all_reduce_many(Communicator& group) {
  Numbers x = start(group);
  int64_t rank = group.rank();
  const std::array<rondo::TensorRef, 2> tensors{
      rondo::TensorRef{x.data(), x.data(), x.size(), DType::kInt64},
      rondo::TensorRef{&rank, &rank, 1, DType::kInt64},
  };
  group.all_reduce_many(tensors);
  x.push_back(rank);
  return x;
}

Numbers reduce_scatter(Communicator& group) {
  Numbers own(1);
  group.reduce_scatter(count_from(group.rank(), group.size()), own);
  return own;
}

Numbers all_to_all(Communicator& group) {
  Numbers received(group.size());
  group.all_to_all(count_from(10 * group.rank(), group.size()), received);
  return received;
}

Numbers barrier(Communicator& group) {
  group.barrier();
  return {};
}

// Uneven: rank r has, or gets, r numbers.
std::vector<uint64_t> uneven(const Communicator& group) {
  std::vector<uint64_t> counts(group.size());
  std::iota(counts.begin(), counts.end(), 0);
  return counts;
}

size_t total(const Communicator& group) { return group.size() * (group.size() - 1) / 2; }

Numbers all_gather_v(Communicator& group) {
  const Numbers own(group.rank(), group.rank());
  Numbers all(total(group));
  group.all_gather_v(own.data(), all.data(), uneven(group), {}, DType::kInt64);
  return all;
}

Numbers gather_v(Communicator& group) {
  const Numbers own(group.rank(), group.rank());
  Numbers all(group.rank() == 0 ? total(group) : 0);
  group.gather_v(own.data(), own.size(), all.data(), uneven(group), {}, DType::kInt64, 0);
  return all;
}

Numbers scatter_v(Communicator& group) {
  const Numbers numbers = count_from(0, total(group));  // read on the root only
  Numbers own(group.rank());
  group.scatter_v(numbers.data(), uneven(group), {}, own.data(), own.size(), DType::kInt64, 0);
  return own;
}

Numbers reduce_scatter_v(Communicator& group) {
  Numbers own(group.rank());
  group.reduce_scatter_v(count_from(group.rank(), total(group)).data(), own.data(), uneven(group), DType::kInt64);
  return own;
}

// Rank r sends r numbers to each.
Numbers all_to_all_v(Communicator& group) {
  const Numbers own(group.rank() * group.size(), group.rank());
  const std::vector<uint64_t> sent(group.size(), group.rank());
  Numbers received(total(group));
  group.all_to_all_v(own.data(), sent, {}, received.data(), uneven(group), {}, DType::kInt64);
  return received;
}

struct Primitive {
  const char* name;
  Numbers (*function)(Communicator&);
};

constexpr Primitive kPrimitives[] = {
    {"broadcast", broadcast},
    {"scatter", scatter},
    {"gather", gather},
    {"reduce", reduce},
    {"all_gather", all_gather},
    {"all_reduce_sum", all_reduce<Op::kSum>},
    {"all_reduce_product", all_reduce<Op::kProduct>},
    {"all_reduce_max", all_reduce<Op::kMax>},
    {"all_reduce_min", all_reduce<Op::kMin>},
    {"all_reduce_many", all_reduce_many},
    {"reduce_scatter", reduce_scatter},
    {"all_to_all", all_to_all},
    {"barrier", barrier},
    {"all_gather_v", all_gather_v},
    {"gather_v", gather_v},
    {"scatter_v", scatter_v},
    {"reduce_scatter_v", reduce_scatter_v},
    {"all_to_all_v", all_to_all_v},
};

void print(const Communicator& group, const char* name, const Numbers& numbers) {
  std::string shown;
  for (const int64_t number : numbers) shown += (shown.empty() ? "" : " ") + std::to_string(number);
  std::printf("%s: rank %d has %s\n", name, group.rank(), shown.empty() ? "-" : shown.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Communicator group = Communicator::join();
    const std::vector<std::string> wanted(argv + 1, argv + argc);
    for (const auto& [name, function] : kPrimitives) {
      if (wanted.empty() || std::ranges::count(wanted, name) > 0) print(group, name, function(group));
    }
    return 0;
  } catch (const rondo::Exception& error) {
    std::fprintf(stderr, "%s: %s\n", rondo::error_code_name(error.code()), error.what());
    return 1;
  }
}
