#include <exception>
#include <mutex>
#include <thread>

#include "tests/life/rank.h"

namespace rondo::life {

// Several threads use one group at once: this one makes collectives, each of the others passes messages on by a tag of
// its own, in memory of its own.
void Thread::crowd(const Step& step, Member& member) {
  finish_messages();
  const Seat here = seat(step, member);
  const int64_t times = step.number("times", 1);
  std::mutex mutex;
  std::string first_wrong;
  const auto guarded = [&](const auto& play_part) {
    try {
      play_part();
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (first_wrong.empty()) first_wrong = error.what();
      member.group->abort(kOurAbort);
    }
  };
  const auto pass_messages = [&](int tag) {
    Memory memory(groups_.at(0).group);
    for (int64_t i = 0; i < times; ++i) pass_on(step, here, tag, memory, member);
  };
  std::vector<std::thread> others;
  for (int i = 1; i < step.number("threads", 2); ++i) {
    others.emplace_back([&, i] { guarded([&] { pass_messages(kCrowdTag + i); }); });
  }
  Step sum = step;
  sum.verb = "all_reduce";
  guarded([&] {
    for (int64_t i = 0; i < times; ++i) {
      Flight flight = make_flight(sum, here, kMessageSlot, 0, memory_);
      must(member.group->run(flight.call), "");
      if (const std::string wrong = flight.check(); !wrong.empty()) fail(wrong);
    }
  });
  for (std::thread& thread : others) thread.join();
  if (!first_wrong.empty()) throw Over(first_wrong);
}

}  // namespace rondo::life
