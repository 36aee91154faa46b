// What a rank of a Job does in a step, and what it checks.
#include <fmt/format.h>

#include <exception>

#include "tests/simulation/life.h"

namespace rondo::testing::sim {

void Job::step(Life& life, Communicator& group, int64_t number) {
  Random draw(script_.seed * 31 + static_cast<uint64_t>(number) * 1'009 + group.epoch());  // the same on all ranks
  sum(life, group, number, draw);
  if (draw.chance(50)) messages(life, group, number, draw);
  if (draw.chance(30)) gather(life, group, number);
  if (script_.parts) part(life, group, number, draw);
}

// In place or not, recoverable or not, beside messages or not.
void Job::sum(Life& life, Communicator& group, int64_t number, Random& draw) {
  const uint64_t size = draw.below(4);
  const size_t count = size == 0 ? 1 : size == 1 ? draw.between(1, 300) : draw.between(300, 3'000);
  const bool in_place = draw.chance(50), beside = draw.chance(30);
  Call call;
  call.options.recoverable = in_place && draw.chance(50);
  Buffer& input = buffer(life, count);
  Buffer& output = in_place ? input : buffer(life, count);
  const Lent input_lent(input), output_lent(output);
  for (size_t i = 0; i < count; ++i) input.values[i] = value(life.number, life.epoch, number, i);
  const std::vector<int64_t> given = input.values;
  call.input = input.values.data();
  call.output = output.values.data();
  call.count = count;
  call.dtype = DType::kInt64;
  Work work;
  if (beside) work = group.start(call);
  std::exception_ptr lost_message;
  try {
    if (beside) messages(life, group, number, draw);
  } catch (const Exception&) {
    lost_message = std::current_exception();
  }
  try {
    beside ? work.wait() : group.run(call);
  } catch (const Exception&) {
    const bool kept = !in_place || call.options.recoverable;
    if (kept && input.values != given) wrong(fmt::format("life {}: a failed sum has changed its input", life.number));
    throw;
  }
  for (size_t i = 0; i < count; ++i) {
    int64_t expected = 0;
    for (const int64_t member : life.members) expected += value(member, life.epoch, number, i);
    if (output.values[i] == expected) continue;
    return wrong(fmt::format("life {}: element {} of {} in step {} of epoch {} is {}, not {}", life.number, i, count,
                             number, life.epoch, output.values[i], expected));
  }
  if (lost_message) std::rethrow_exception(lost_message);
}

void Job::gather(Life& life, Communicator& group, int64_t number) {
  constexpr size_t kCount = 100;
  Buffer &own = buffer(life, kCount), &all = buffer(life, kCount * life.members.size());
  const Lent own_lent(own), all_lent(all);
  for (size_t i = 0; i < kCount; ++i) own.values[i] = value(life.number, life.epoch, number, i);
  group.all_gather(own.values.data(), all.values.data(), kCount, DType::kInt64);
  for (size_t i = 0; i < all.values.size(); ++i) {
    if (all.values[i] == value(life.members[i / kCount], life.epoch, number, i % kCount)) continue;
    return wrong(fmt::format("life {}: what it has gathered in step {} is wrong", life.number, number));
  }
}

// All, or every second rank, in a communicator of their own.
void Job::part(Life& life, Communicator& group, int64_t number, Random& draw) {
  const int parts = static_cast<int>(draw.between(1, 2));
  const size_t count = draw.between(1, 300);
  Communicator part = group.split(group.rank() % parts);
  try {
    for (int64_t round = 0; round < 2; ++round)
      sum_of_part(life, part, number + round, {group.rank() % parts, parts}, count);
    part.destroy();
  } catch (const Exception& failure) {
    if (failure.code() == ErrorCode::kTimeout)
      wrong(fmt::format("life {}, in a part: {}", life.number, failure.what()));
    throw;
  }
}

void Job::sum_of_part(Life& life, Communicator& part, int64_t number, std::pair<int, int> first_and_stride,
                      size_t count) {
  const auto [first, stride] = first_and_stride;
  Buffer& sum = buffer(life, count);
  const Lent lent(sum);
  for (size_t i = 0; i < count; ++i) sum.values[i] = value(life.number, life.epoch, number, i);
  part.all_reduce(sum.values.data(), sum.values.data(), count, DType::kInt64);
  for (size_t i = 0; i < count; ++i) {
    int64_t expected = 0;
    for (size_t rank = static_cast<size_t>(first); rank < life.members.size(); rank += static_cast<size_t>(stride)) {
      expected += value(life.members[rank], life.epoch, number, i);
    }
    if (sum.values[i] != expected) return wrong(fmt::format("life {}: the sum of its part is wrong", life.number));
  }
}

// Round the ring, and back.
void Job::messages(Life& life, Communicator& group, int64_t number, Random& draw) {
  const size_t count = draw.chance(50) ? draw.between(1, 20) : draw.between(20, 2'000);
  exchange(life, group, number, 1, count);
  exchange(life, group, number, life.members.size() - 1, count);
}

void Job::exchange(Life& life, Communicator& group, int64_t number, size_t by, size_t count) {
  const size_t size = life.members.size();
  const auto rank = static_cast<size_t>(group.rank());
  const size_t to = (rank + by) % size, from = (rank + size - by) % size;
  Buffer &sent = buffer(life, count), &received = buffer(life, count);
  const Lent sent_lent(sent), received_lent(received);
  for (size_t i = 0; i < count; ++i) sent.values[i] = value(life.number, life.epoch, number, i);
  MessageCall send, receive;
  receive.kind = MessageKind::kReceive;
  send.data = sent.values.data();
  receive.data = received.values.data();
  send.count = receive.count = count;
  send.dtype = receive.dtype = DType::kInt64;
  send.peer = static_cast<int>(to);
  receive.peer = static_cast<int>(from);
  send.tag = receive.tag = static_cast<int>(by);
  group.run(send, receive);
  for (size_t i = 0; i < count; ++i) {
    if (received.values[i] == value(life.members[from], life.epoch, number, i)) continue;
    return wrong(fmt::format("life {}: the message of life {} in step {} is not what was sent", life.number,
                             life.members[from], number));
  }
}

}  // namespace rondo::testing::sim
