// Messages, handles and groups on one or two numbers a rank. With 4 ranks it prints the lines of messages.txt.
//   rondo-run -n 4 bazel-bin/examples/messages [NAME ...]
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rondo/communicator.h>

namespace {

using rondo::Communicator;
using rondo::Work;
using Numbers = std::vector<int64_t>;

// Ranks 0 and 1; each adds 1.
Numbers ping_pong(Communicator& group) {
  Numbers x{0};
  if (group.rank() == 0) {
    x[0] += 1;
    group.send(x, 1);
    group.recv(x, 1);
  } else if (group.rank() == 1) {
    group.recv(x, 0);
    x[0] += 1;
    group.send(x, 0);
  }
  return x;
}

// The same by handles: a buffer is left alone until its handle is done.
Numbers ping_pong_async(Communicator& group) {
  Numbers x{0};
  const Numbers one{1};
  if (group.rank() == 0) {
    Work sent = group.send_async(one, 1);
    group.recv_async(x, 1).wait();
    sent.wait();
  } else if (group.rank() == 1) {
    group.recv_async(x, 0).wait();
    x[0] += 1;
    group.send_async(x, 0).wait();
  }
  return x;
}

// Two messages, received in the other order.
Numbers tags(Communicator& group) {
  Numbers x{0, 0};
  const Numbers sent{10, 20};
  std::vector<Work> works;
  for (int i = 0; i < 2; ++i) {
    if (group.rank() == 0) works.push_back(group.send_async(std::span(sent).subspan(i, 1), 1, i + 1));
    if (group.rank() == 1) works.push_back(group.recv_async(std::span(x).subspan(1 - i, 1), 0, 2 - i));
  }
  for (Work& work : works) work.wait();
  return x;
}

// Rank 0 receives from any source, and learns which rank sent.
Numbers any_source(Communicator& group) {
  if (group.rank() > 0) {
    group.send(Numbers{10 * group.rank()}, 0);
    return {};
  }
  std::vector<std::pair<int, int64_t>> pairs;
  for (int i = 1; i < group.size(); ++i) {
    Numbers x{0};
    const rondo::Message message = group.recv(x, rondo::kAnySource);
    pairs.emplace_back(message.peer, x[0]);
  }
  std::ranges::sort(pairs);
  Numbers flat;
  for (const auto& [peer, number] : pairs) flat.insert(flat.end(), {peer, number});
  return flat;
}

// A message that nobody has received yet holds up no collective.
Numbers unreceived(Communicator& group) {
  Numbers x{group.rank()};
  const Numbers five{5};
  Work work;
  if (group.rank() == 0) work = group.send_async(five, 1);
  group.all_reduce(x);
  if (group.rank() == 0) work.wait();
  if (group.rank() == 1) group.recv(x, 0);
  return x;
}

// Around the ring: to the right, from the left.
Numbers sendrecv(Communicator& group) {
  const int64_t rank = group.rank();
  const int size = group.size();
  Numbers x(1);
  group.sendrecv(&rank, 1, (group.rank() + 1) % size, x.data(), 1, (group.rank() + size - 1) % size,
                 rondo::DType::kInt64);
  return x;
}

// A Work that was waited for stays done.
Numbers async_op(Communicator& group) {
  Numbers x{1 + 2 * group.rank(), 2 + 2 * group.rank()};
  Work work = group.all_reduce_async(x);
  work.wait();
  if (!work.done()) throw rondo::Exception(rondo::ErrorCode::kInternal, "a work that was waited for is not done");
  return x;
}

// wait() throws if its operation has failed: here rank 1 brings another count. Only the copy fails.
Numbers async_failure(Communicator& group) {
  Communicator copy = group.split(0);
  Numbers ones(group.rank() == 1 ? 3 : 2, 1);
  try {
    copy.all_reduce_async(ones).wait();
  } catch (const rondo::Exception& error) {
    if (error.code() == rondo::ErrorCode::kMismatch) return {1};
    throw;
  }
  return {0};
}

// Ones, added up by ranks 0 and 1 only.
Numbers new_group(Communicator& group) {
  Numbers ones{1, 1};
  if (group.rank() < 2) {
    const std::array<int, 2> ranks{0, 1};
    group.new_group(ranks).all_reduce(ones);
  }
  return ones;
}

// All ranks add up their numbers while the even and the odd ones do: the sums do not mix.
Numbers groups_at_once(Communicator& group) {
  Communicator parity = group.split(group.rank() % 2);
  Numbers everybody{group.rank()}, few{group.rank()};
  Work both[] = {group.all_reduce_async(everybody), parity.all_reduce_async(few)};
  for (Work& work : both) work.wait();
  return {everybody[0], few[0]};
}

// Functions are collective: all ranks call them in one order.
struct Example {
  const char* name;
  Numbers (*function)(Communicator&);
};

constexpr Example kExamples[] = {
    {"ping_pong", ping_pong},
    {"ping_pong_async", ping_pong_async},
    {"tags", tags},
    {"any_source", any_source},
    {"unreceived", unreceived},
    {"sendrecv", sendrecv},
    {"async_op", async_op},
    {"async_failure", async_failure},
    {"new_group", new_group},
    {"groups_at_once", groups_at_once},
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
    for (const auto& [name, function] : kExamples) {
      if (wanted.empty() || std::ranges::count(wanted, name) > 0) print(group, name, function(group));
    }
    return 0;
  } catch (const rondo::Exception& error) {
    std::fprintf(stderr, "%s: %s\n", rondo::error_code_name(error.code()), error.what());
    return 1;
  }
}
