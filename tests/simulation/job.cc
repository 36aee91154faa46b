#include "tests/simulation/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "tests/simulation/life.h"

namespace rondo::testing::sim {
namespace {

// The longest run: more than two calls that end by their timeouts.
constexpr Time kLongest = 400 * kSecond;

// After which a program shrinks.
bool is_of_the_world(ErrorCode code) {
  return code == ErrorCode::kPeerLost || code == ErrorCode::kPeerLeft || code == ErrorCode::kUnresponsive ||
         code == ErrorCode::kAborted || code == ErrorCode::kNetwork || code == ErrorCode::kTimeout ||
         code == ErrorCode::kBootstrap;
}

}  // namespace

Job::Job(Script script) : script_(std::move(script)), machine_(script_.seed), kernel_(machine_, script_.network) {}
Job::~Job() = default;

void Job::wrong(const std::string& what) {
  say(what);
  if (report_.wrong.empty()) report_.wrong = what;
}

void Job::say(const std::string& what) const {
  if (script_.config.debug == "off") return;
  fmt::print(stderr, "{} us: {}\n", machine_.now() / kMicrosecond % 1'000'000'000, what);
}

int64_t Job::value(int64_t number, uint64_t epoch, int64_t step, size_t index) {
  return (number + 1) * 1'000'003 + static_cast<int64_t>(epoch) * 10'007 + step * 101 +
         static_cast<int64_t>(index % 17);
}

Job::Buffer& Job::buffer(Life& life, size_t count) {
  life.buffers.push_back(std::make_unique<Buffer>());
  life.buffers.back()->values.assign(count, 0);
  return *life.buffers.back();
}

void Job::check_buffers(const Life& life) {
  const bool sound = std::all_of(life.buffers.begin(), life.buffers.end(), [](const auto& buffer) {
    return !buffer->over || std::all_of(buffer->values.begin(), buffer->values.end(),
                                        [](int64_t value) { return value == Buffer::kUntouched; });
  });
  if (!sound) wrong(fmt::format("life {}: a buffer was written to after its call was over", life.number));
}

// --- a process, from its start to its end

void Job::begin(int host, int rank) {
  lives_.push_back(std::make_unique<Life>());
  Life& life = *lives_.back();
  life.began = machine_.now();
  life.number = static_cast<int64_t>(lives_.size()) - 1;
  life.rank = rank;
  life.process = &machine_.spawn(host, [this, &life] { live(life); });
  kernel_.adopt(*life.process);
}

JoinOptions Job::options_of(const Life& life) const {
  JoinOptions options;
  options.config = script_.config;
  options.job_id = "simulated";
  const std::set<int> hosts(script_.host.begin(), script_.host.end());
  for (const int host : hosts) {
    options.newcomers += fmt::format("{}tcp://10.0.0.{}:29600", options.newcomers.empty() ? "" : ",", host + 1);
  }
  if (life.rank < 0) return options;
  options.rank = life.rank;
  options.world = static_cast<int>(script_.host.size());
  options.rendezvous = fmt::format("tcp://10.0.0.{}:29500", script_.host[0] + 1);
  return options;
}

void Job::live(Life& life) {
  try {
    Communicator group = Communicator::join(options_of(life));
    life.joined = true;
    report_.started = machine_.steps();
    play(life, group);
    life.ended = true;
    ++report_.finished;
  } catch (const Exception& failure) {
    life.ended = true;
    count_end(life, failure);
  } catch (const std::exception& failure) {
    wrong(fmt::format("life {}: {}", life.number, failure.what()));
  }
  finish(life);
}

void Job::note_blame(const Exception& failure) {
  uint64_t named = 0;
  for (const int rank : failure.error().ranks) named |= rank < 64 ? bit_of(rank) : 0;
  report_.blames_differ |= report_.codes != 0 && named != report_.blamed;
  report_.blamed |= named;
  report_.codes |= bit_of(failure.code());
}

void Job::count_end(const Life& life, const Exception& failure) {
  const ErrorCode code = failure.code();
  if (!life.joined) note_blame(failure);
  if (!life.joined && life.began + kSecond < report_.last_fault) {
    report_.told = std::max(report_.told, machine_.now() - report_.last_fault);
  }
  const std::string what = fmt::format("life {} ends by {}: {}", life.number, error_code_name(code), failure.what());
  if (code == ErrorCode::kEpochStale) {
    ++report_.left_out;
  } else if (code == ErrorCode::kNoQuorum) {
    ++report_.without_quorum;
  } else if (is_of_the_world(code)) {
    ++report_.failed;
  } else {
    wrong(what);  // the program's fault, or the library's
  }
  say(what);
}

void Job::finish(Life& life) {
  check_buffers(life);
  if (const size_t open = kernel_.open_descriptors(*life.process); open != 0) {
    wrong(fmt::format("life {}: {} descriptors are open at its end", life.number, open));
  }
  if (life.process->threads != 1) {
    wrong(fmt::format("life {}: {} threads run at its end", life.number, life.process->threads - 1));
  }
}

void Job::play(Life& life, Communicator& group) {
  while (true) {
    try {
      if (!advance(life, group)) break;
    } catch (const Exception& failure) {
      if (!recover(life, group, failure)) throw;
    }
  }
  group.destroy();
}

// False: all steps are committed.
bool Job::advance(Life& life, Communicator& group) {
  if (!life.entered) enter(life, group);
  life.entered = true;
  const int64_t next = group.committed() + 1;
  if (next >= script_.steps) return false;
  if (const int waiting = script_.newcomers > 0 ? group.newcomers() : 0; waiting > 0) {
    group = group.grow(waiting, std::chrono::milliseconds(script_.patience_ms));
    life.entered = false;
    return true;
  }
  step(life, group, next);
  group.commit(next, static_cast<uint64_t>(next) * 77);
  say(fmt::format("life {} has committed step {}", life.number, next));
  if (life.went_on == 0 && report_.last_fault > 0) life.went_on = machine_.now() - report_.last_fault;
  return true;
}

// False: this life ends with the failure.
bool Job::recover(Life& life, Communicator& group, const Exception& failure) {
  say(fmt::format("life {} in epoch {}: {}", life.number, life.epoch, failure.what()));
  check_buffers(life);
  life.entered = false;
  if (!is_of_the_world(failure.code())) return false;
  if (group.epoch() == 0) note_blame(failure);
  if (const auto known = group.error(); known && known->code == ErrorCode::kClosed) {
    // In shrink() or grow() the next epoch could not be connected: a firewall refuses it, or the network is too slow.
    if (failure.code() != ErrorCode::kNetwork && failure.code() != ErrorCode::kTimeout) {
      wrong(fmt::format("life {}: going on ended with {}", life.number, failure.what()));
    }
    return false;
  }
  if (failure.code() == ErrorCode::kTimeout && group.error()) {
    wrong(fmt::format("life {}: nobody found out why a call does not end: {}", life.number, failure.what()));
  }
  group = group.shrink(std::chrono::milliseconds(script_.patience_ms));
  return true;
}

// --- an epoch

void Job::enter(Life& life, Communicator& group) {
  check_buffers(life);
  const auto size = static_cast<size_t>(group.size());
  const uint64_t epoch = group.epoch();
  if (!life.members.empty() && epoch <= life.epoch) {
    wrong(fmt::format("life {}: epoch {} after epoch {}", life.number, epoch, life.epoch));
  }
  life.epoch = epoch;
  Buffer &own = buffer(life, 3), &all = buffer(life, 3 * size);
  const Lent own_lent(own), all_lent(all);
  own.values = {life.number, static_cast<int64_t>(epoch), group.committed()};
  group.all_gather(own.values.data(), all.values.data(), 3, DType::kInt64);
  life.members.clear();
  for (size_t r = 0; r < size; ++r) {
    life.members.push_back(all.values[3 * r]);
    if (all.values[3 * r + 1] == own.values[1] && all.values[3 * r + 2] == own.values[2]) continue;
    wrong(fmt::format("life {} is in epoch {} with step {}, its rank {} in epoch {} with step {}", life.number, epoch,
                      group.committed(), r, all.values[3 * r + 1], all.values[3 * r + 2]));
  }
  if (life.members[static_cast<size_t>(group.rank())] != life.number) {
    wrong(fmt::format("life {} is not rank {} of those that answer in epoch {}", life.number, group.rank(), epoch));
  }
  compare_epochs(epoch, life.members);
}

// One epoch of a number: another one may begin once all of the first are known to have ended.
void Job::compare_epochs(uint64_t epoch, const std::vector<int64_t>& members) {
  std::vector<int64_t>& known = epochs_[epoch];
  if (known == members) return;
  if (!std::all_of(known.begin(), known.end(), [this](int64_t number) { return over(number); })) {
    wrong(fmt::format("epoch {} of lives {} and of lives {}", epoch, fmt::join(known, " "), fmt::join(members, " ")));
  }
  known = members;
}

bool Job::over(int64_t number) const {
  const Life& life = *lives_[static_cast<size_t>(number)];
  return life.ended || life.process->ended;
}

// --- faults

void Job::end(Life& life) {
  report_.killed += !life.ended;
  life.ended = true;
  machine_.end(*life.process);
}

void Job::happen(const Fault& fault) {
  say(fmt::format("{} {} {}", name_of(fault.kind), fault.one, fault.other));
  report_.last_fault = machine_.now();
  for (const auto& life : lives_) life->went_on = 0;
  const int one = fault.one, other = fault.other;
  const auto of_life = [&](auto what) {
    if (static_cast<size_t>(one) < lives_.size()) what(*lives_[static_cast<size_t>(one)]);
  };
  // Both ways or one, now and not any more after `lasts`.
  const auto for_a_while = [&](auto change, bool both) {
    change(one, other, true);
    if (both) change(other, one, true);
    machine_.after(fault.lasts, [=] {
      change(one, other, false);
      if (both) change(other, one, false);
    });
  };
  const auto block = [this](int from, int to, bool now) { now ? kernel_.block(from, to) : kernel_.unblock(from, to); };
  switch (fault.kind) {
    case Fault::Kind::kCrash:
      return of_life([this](Life& life) { end(life); });
    case Fault::Kind::kStop:
      return of_life([&](Life& life) { machine_.stop(*life.process, machine_.now() + fault.lasts); });
    case Fault::Kind::kPower:
      kernel_.lose_power(one);
      for (const auto& life : lives_) {
        if (life->process->host == one) end(*life);
      }
      return;
    case Fault::Kind::kOneWay:
      return for_a_while(block, false);
    case Fault::Kind::kPartition:
      return for_a_while(block, true);
    case Fault::Kind::kForget:
      if (one != other) kernel_.forget_connection(one, other);
      return;
    case Fault::Kind::kReject:
      return for_a_while([this](int from, int to, bool now) { kernel_.reject(from, to, now); }, true);
    case Fault::Kind::kSilence:
      if (one != other) kernel_.silence_connections(one, other);
      return;
  }
}

// --- a run

Report Job::run() {
  report_.began = machine_.now();
  const int last = static_cast<int>(script_.host.size()) - 1;
  for (int rank = 0; rank < last; ++rank) begin(script_.host[static_cast<size_t>(rank)], rank);
  if (script_.late == 0) begin(script_.host.back(), last);
  if (script_.late > 0) machine_.after(script_.late, [this, last] { begin(script_.host.back(), last); });
  for (int i = 0; i < script_.newcomers; ++i) {
    const int host = script_.host[static_cast<size_t>(i) % script_.host.size()];
    machine_.after(static_cast<Time>(machine_.random().below(20)) * kMillisecond, [this, host] { begin(host, -1); });
  }
  const auto before = [this](uint64_t step) {
    for (const Fault& fault : script_.faults) {
      if (fault.step == step) happen(fault);
    }
  };
  if (!machine_.run(before, report_.began + kLongest)) {
    wrong(fmt::format("processes {} go on for ever", machine_.living()));
  }
  if (kernel_.misuses() > 0) wrong(fmt::format("{} uses of descriptors that are not open", kernel_.misuses()));
  report_.steps = machine_.steps();
  report_.digest = machine_.digest();
  report_.ended = machine_.now();
  report_.epochs = static_cast<int>(epochs_.size());
  for (const auto& life : lives_) report_.went_on = std::max(report_.went_on, life->went_on);
  return report_;
}

Report run_apart(const Script& script) {
  if (std::getenv("RONDO_HERE") != nullptr) return Job(script).run();
  constexpr size_t kNumbers = sizeof(Report) - offsetof(Report, steps);
  Report report;
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    report = Job(script).run();
    const std::string bytes = std::string(reinterpret_cast<const char*>(&report.steps), kNumbers) + report.wrong;
    static_cast<void>(!::write(ends[1], bytes.data(), bytes.size()));
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string bytes;
  char part[4096];
  for (ssize_t got = 0; (got = ::read(ends[0], part, sizeof part)) > 0;) bytes.append(part, static_cast<size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0 || bytes.size() < kNumbers) {
    report.wrong = fmt::format("the simulation ended with status {}", status);
    return report;
  }
  std::memcpy(&report.steps, bytes.data(), kNumbers);
  report.wrong = bytes.substr(kNumbers);
  return report;
}

}  // namespace rondo::testing::sim
