#include "tests/life/rank.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "tests/support/random.h"

namespace rondo::life {
namespace {

constexpr char kOurAbort[] = "life: a rank found a fault";

// This rank's life is over.
struct Over : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string said(const Error& error) {
  std::string ranks;
  for (int rank : error.ranks) ranks += " " + std::to_string(rank);
  return std::string(error_code_name(error.code)) + " [" + (ranks.empty() ? "" : ranks.substr(1)) + "] " +
         error.message;
}

bool blames(const Error& error, int rank) {
  return std::find(error.ranks.begin(), error.ranks.end(), rank) != error.ranks.end();
}

constexpr int kMessageSlot = 100;  // memory of messages; slots of the text are below
constexpr int kDeferredSlot = 200;
constexpr int kSlots = 16;
constexpr int kBarriers = 10'000;  // of ranks that disagree, before all know

}  // namespace

Report::Report(const std::string& folder, int rank) : folder_(folder), rank_(rank) {
  const std::string path = folder + "/at-" + std::to_string(rank);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, 4096) != 0) throw std::runtime_error("life: cannot open " + path);
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (page == MAP_FAILED) throw std::runtime_error("life: cannot map " + path);
  at_ = static_cast<std::atomic<uint64_t>*>(page);
}

Report::~Report() {
  std::ofstream file(folder_ + "/report-" + std::to_string(rank_));
  for (const std::string& fault : faults_) file << "fault " << fault << "\n";
  for (const auto& [where, hash] : bits_) {
    file << "bits " << where.first << "/" << where.second << " " << std::hex << hash << std::dec << "\n";
  }
  ::munmap(at_, 4096);
}

void Report::at(int thread, int line) {
  at_[2 * thread].store(static_cast<uint64_t>(line), std::memory_order_relaxed);
  at_[2 * thread + 1].fetch_add(1, std::memory_order_relaxed);
}

void Report::fault(const std::string& text) {
  const std::lock_guard lock(mutex_);
  std::string line = "rank " + std::to_string(rank_) + ": " + text;
  std::replace(line.begin(), line.end(), '\n', ' ');
  faults_.push_back(line);
}

bool Report::bits(int line, int leader, uint64_t hash, bool compare) {
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = bits_.emplace(std::pair(line, leader), hash);
  return is_new || !compare || place->second == hash;
}

bool Report::clean() {
  const std::lock_guard lock(mutex_);
  return faults_.empty();
}

Thread::Thread(const Life& life, int rank, int thread, Report& report, Group* job)
    : life_(life), rank_(rank), thread_(thread), report_(report), memory_(job) {}

Thread::~Thread() = default;

void Thread::fail(const std::string& what) {
  std::string text = what;
  if (now_ != nullptr) {
    text = "line " + std::to_string(now_->line) + ", time " + std::to_string(reached_[now_->line]) + " (" +
           print(*now_) + "): " + what;
  }
  throw Over(text);
}

void Thread::must(const Error& error, const std::string& what) {
  if (!error.ok()) fail(what + said(error));
}

void Thread::play(Group* group, std::unique_ptr<Group> owned) {
  try {
    Member& first = groups_[0];
    first.group = group;
    first.owned = std::move(owned);
    first.me = rank_;
    for (int r = 0; r < life_.world; ++r) first.ranks.push_back(r);
    play(life_.threads[static_cast<size_t>(thread_)]);
    for (int slot = 1; slot < kSlots; ++slot) finish(slot);
    while (!groups_.empty()) drop(groups_.rbegin()->first);
  } catch (const std::exception& error) {
    // What another rank found is in that one's report.
    if (error.what()[0] != 0 && std::strstr(error.what(), kOurAbort) == nullptr) report_.fault(error.what());
    for (auto& [number, member] : groups_) member.group->abort(kOurAbort);
    group->abort(kOurAbort);
    // Operations under way end before their memory does.
    for (auto& [number, slot] : slots_) {
      if (slot.handle) slot.handle->wait();
    }
    for (auto& [number, member] : groups_) {
      for (auto& [name, deferred] : member.deferred) {
        for (auto& send : deferred.sends) send->wait();
      }
    }
    slots_.clear();
    groups_.clear();
  }
}

void Thread::play(const std::vector<Step>& steps) {
  for (const Step& step : steps) play(step);
}

void Thread::play(const Step& step) {
  if (step.verb == "repeat") {
    for (int64_t i = 0; i < step.number("times"); ++i) play(step.inner);
    return;
  }
  now_ = &step;
  ++reached_[step.line];
  report_.at(thread_, step.line);
  const auto slot = static_cast<int>(step.number("slot"));
  if (step.verb == "wait") return finish(slot);
  if (step.verb == "poll") return finish(slot, true);
  if (step.verb == "drop_work") return finish(slot, false, true);
  if (step.verb == "free") {
    for (int used = 1; used < kSlots; ++used) finish(used);
    return memory_.free_registered(kDeferredSlot);
  }
  const auto number = static_cast<int>(step.number("group"));
  const auto found = groups_.find(number);
  if (found == groups_.end()) return;
  Member& member = found->second;
  if (step.verb == "split") return make_split(step, member);
  if (step.verb == "new_group") return make_new_group(step, member);
  if (step.verb == "drop") return number == 0 ? void() : drop(number);
  if (is_collective(step.verb)) return collective(step, member);
  if (step.verb == "batch") return batch(step, member);
  if (step.verb == "exchange") return exchange(step, member);
  if (step.verb == "collect") return collect(step.word("name"), member);
  if (step.verb == "shift") return shift(step, member);
  if (step.verb == "sparse") return sparse(step, member);
  if (step.verb == "distopt") return distopt(step, member);
  if (step.verb == "bad") return bad(step, member);
  if (step.verb == "disagree") return disagree(step, number, member);
  if (step.verb == "abort" || step.verb == "leave" || step.verb == "kill") return departure(step, number, member);
  if (step.verb == "hostile") return hostile(step, member);
  fail("no step has this name");
}

Seat Thread::seat(const Step& step, const Member& member) {
  const bool random = step.word("data") == "random";
  const auto salt = static_cast<uint64_t>(step.number("salt"));
  return {member.size(), member.me, random ? salt : salt + reached_[step.line] - 1};
}

// --- Groups

void Thread::make_split(const Step& step, Member& parent) {
  const auto as = static_cast<int>(step.number("as"));
  if (as != 0 && groups_.count(as) != 0) drop(as);
  std::vector<std::pair<std::pair<int, int>, int>> order;  // ((key, rank in the parent), rank of the job)
  const auto color_of = [&](int m) { return std::stoi(step.of_member("color", m, "0")); };
  const int mine = color_of(parent.me);
  for (int m = 0; m < parent.size(); ++m) {
    if (color_of(m) == mine) order.push_back({{std::stoi(step.of_member("key", m, "0")), m}, parent.ranks[m]});
  }
  std::sort(order.begin(), order.end());
  Member made;
  must(parent.group->split(mine, std::stoi(step.of_member("key", parent.me, "0")), &made.owned), "");
  if ((mine >= 0) != (made.owned != nullptr)) fail("gave a group where the color is none, or none");
  if (mine < 0) return;
  for (const auto& [key, rank] : order) {
    if (rank == rank_) made.me = made.size();
    made.ranks.push_back(rank);
  }
  made.group = made.owned.get();
  groups_[as] = std::move(made);
}

void Thread::make_new_group(const Step& step, Member& parent) {
  const auto as = static_cast<int>(step.number("as"));
  if (as != 0 && groups_.count(as) != 0) drop(as);
  std::vector<int> ranks;
  for (uint64_t r : step.numbers("ranks")) {
    const int rank = static_cast<int>(r) % parent.size();
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
  }
  if (std::find(ranks.begin(), ranks.end(), parent.me) == ranks.end()) return;
  Member made;
  must(parent.group->new_group(ranks, &made.owned), "");
  for (int rank : ranks) {
    if (rank == parent.me) made.me = made.size();
    made.ranks.push_back(parent.ranks[static_cast<size_t>(rank)]);
  }
  made.group = made.owned.get();
  groups_[as] = std::move(made);
}

void Thread::drop(int number) {
  Member& member = groups_.at(number);
  for (auto& [slot, state] : slots_) {
    if (state.member == &member) finish(slot);
  }
  // Nobody receives these: they end, well or in words.
  Group* group = member.group;
  if (member.owned != nullptr) {
    must(group->destroy(), "destroy: ");
    for (auto& [name, deferred] : member.deferred) {
      for (auto& send : deferred.sends) send->wait();
    }
  } else {
    while (!member.deferred.empty()) collect(member.deferred.begin()->first, member, true);
  }
  groups_.erase(number);
}

// --- Collectives

void Thread::check(Flight& flight, Member& member) {
  if (const std::string wrong = flight.check(); !wrong.empty()) {
    now_ = flight.step;
    fail(wrong);
  }
  if (flight.output < 0) return;
  const Watched& output = flight.watched[static_cast<size_t>(flight.output)];
  const uint64_t hash = hash_of(output.data, flight.output_bytes);
  const bool compare = flight.step->word("data") == "random" && flight.step->number("residual") == 0;
  if (!report_.bits(flight.step->line, member.ranks[0], hash, compare)) {
    now_ = flight.step;
    fail("equal calls have other bits than before");
  }
}

void Thread::collective(const Step& step, Member& member) {
  const auto slot = static_cast<int>(step.number("slot"));
  if (slot != 0) finish(slot);
  Flight flight = make_flight(step, seat(step, member), slot, 0, memory_);
  if (slot == 0) {
    must(member.group->run(flight.call), "");
    return check(flight, member);
  }
  Slot& state = slots_[slot];
  must(member.group->start(flight.call, &state.handle), "start: ");
  state.flights.push_back(std::move(flight));
  state.member = &member;
  state.line = step.line;
  if (step.number("end") == 0) return;
  state.ended = std::make_shared<std::atomic<int>>(0);
  state.handle->on_end([ended = state.ended] {
    ended->fetch_add(1);
    ended->notify_all();
  });
}

void Thread::finish(int slot, bool poll, bool drop) {
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return;
  Slot& state = found->second;
  if (drop) {
    if (state.ended == nullptr) {
      state.ended = std::make_shared<std::atomic<int>>(0);
      state.handle->on_end([ended = state.ended] {
        ended->fetch_add(1);
        ended->notify_all();
      });
    }
    state.handle.reset();
    return;
  }
  if (state.handle != nullptr) {
    while (poll && !state.handle->done()) std::this_thread::yield();
    const Error error = state.handle->wait();
    if (!error.ok())
      fail("the work of line " + std::to_string(state.line) + " in slot " + std::to_string(slot) + ": " + said(error));
  }
  if (state.ended != nullptr) {
    state.ended->wait(0);
    if (state.ended->load() != 1) fail("its end function was called more than once");
  }
  for (Flight& flight : state.flights) check(flight, *state.member);
  slots_.erase(slot);
}

void Thread::batch(const Step& step, Member& member) {
  const auto slot = static_cast<int>(step.number("slot"));
  if (slot != 0) finish(slot);
  finish_messages();
  std::vector<Flight> flights;
  must(member.group->batch_begin(), "batch_begin: ");
  int index = 0;
  for (const Step& inner : step.inner) {
    ++reached_[inner.line];
    if (is_collective(inner.verb)) {
      flights.push_back(make_flight(inner, seat(inner, member), slot, ++index, memory_));
      must(member.group->run(flights.back().call), print(inner) + ": ");
    } else if (inner.verb == "exchange") {
      const std::vector<Message> list = messages(inner, member);
      std::vector<bool> seen(list.size(), false);
      const uint64_t salt = seat(inner, member).salt;
      for (size_t k = 0; k < list.size(); ++k) {
        const Message& message = list[k];
        const auto place = static_cast<int>(1000 * ++index + static_cast<int>(k));
        if (message.src == member.me) {
          flights.push_back(send_flight(inner, member, message, static_cast<int>(k), salt, slot + place));
          must(member.group->run(flights.back().call), "send: ");
        } else if (message.dst == member.me) {
          flights.push_back(recv_flight(inner, member, list, static_cast<int>(k), slot + place));
          must(member.group->run(flights.back().call), "recv: ");
          expect_message(flights.back(), inner, member, list, seen,
                         {message.src, message.tag, message.count * dtype_bytes(flights.back().call.dtype)}, salt);
        }
      }
    }
  }
  if (slot == 0) {
    must(member.group->batch_end(nullptr), "batch_end: ");
    for (Flight& flight : flights) check(flight, member);
    return;
  }
  Slot& state = slots_[slot];
  must(member.group->batch_end(&state.handle), "batch_end: ");
  state.flights = std::move(flights);
  state.is_batch = true;
  state.member = &member;
  state.line = step.line;
}

// --- Messages

// Batches under way may have messages whose tags a later line uses, too.
void Thread::finish_messages() {
  for (int slot = 1; slot < kSlots; ++slot) {
    const auto found = slots_.find(slot);
    if (found != slots_.end() && found->second.is_batch) finish(slot);
  }
}

std::vector<Thread::Message> Thread::messages(const Step& step, const Member& member) const {
  std::vector<Message> list;
  for (const std::string& text : step.words("messages", ';')) {
    Message message{};
    unsigned long long count = 0;
    if (std::sscanf(text.c_str(), "%d>%d:%d:%llu", &message.src, &message.dst, &message.tag, &count) != 4) {
      throw Over("a message is SRC>DST:TAG:COUNT, not " + text);
    }
    message.count = count;
    // Until they are received, no other message has their tags.
    if (step.word("mode") == "defer") message.tag += 1000 * (1 + std::stoi("0" + step.word("name").substr(1)));
    message.src %= member.size();
    message.dst %= member.size();
    if (message.src != message.dst) list.push_back(message);
  }
  return list;
}

Flight Thread::send_flight(const Step& step, const Member& member, const Message& message, int k, uint64_t salt,
                           int slot) {
  Flight flight;
  flight.step = &step;
  const Kind kind{dtype_named(step.word("dtype", "uint8")), Op::kSum, member.size(), false};
  const size_t bytes = message.count * dtype_bytes(kind.dtype);
  Watched in = memory_.take({slot, k, 0}, step.of_member("in", member.me, "p"), bytes, flight.fresh);
  in.dtype = kind.dtype;
  fill(input_cycle(kind), phase_of(message.src, salt) + 37 * static_cast<uint64_t>(k), in.data, message.count);
  in.expected.assign(in.begin, in.data + bytes + kGuardBytes);
  Call& call = flight.call;
  call.verb = Verb::kSend;
  call.in = in.data;
  call.count = message.count;
  call.dtype = kind.dtype;
  call.root = message.dst;
  call.tag = message.tag;
  flight.watched.push_back(std::move(in));
  return flight;
}

Flight Thread::recv_flight(const Step& step, const Member& member, const std::vector<Message>& list, int k, int slot) {
  Flight flight;
  flight.step = &step;
  uint64_t room = 0;
  for (const Message& message : list) room = std::max(room, message.count);
  Call& call = flight.call;
  call.verb = Verb::kRecv;
  call.dtype = dtype_named(step.word("dtype", "uint8"));
  call.count = room;
  call.root = list[static_cast<size_t>(k)].src;
  call.tag = list[static_cast<size_t>(k)].tag;
  const size_t bytes = room * dtype_bytes(call.dtype);
  Watched out = memory_.take({slot, k, 1}, step.of_member("out", member.me, "p"), bytes, flight.fresh);
  out.name = "message";
  out.dtype = call.dtype;
  out.expected.assign(out.begin, out.data + bytes + kGuardBytes);
  call.out = out.data;
  flight.watched.push_back(std::move(out));
  return flight;
}

// The first message of the list from this peer with this tag that has not been seen is what the memory must hold.
void Thread::expect_message(Flight& flight, const Step& step, const Member& member, const std::vector<Message>& list,
                            std::vector<bool>& seen, Work::Message got, uint64_t salt) {
  for (size_t k = 0; k < list.size(); ++k) {
    const Message& message = list[k];
    if (seen[k] || message.src != got.peer || message.tag != got.tag || message.dst != member.me) continue;
    seen[k] = true;
    const Kind kind{flight.call.dtype, Op::kSum, member.size(), false};
    if (got.bytes != message.count * dtype_bytes(kind.dtype)) {
      fail("a message from " + std::to_string(got.peer) + " with tag " + std::to_string(got.tag) + " has " +
           std::to_string(got.bytes) + " bytes instead of " + std::to_string(message.count * dtype_bytes(kind.dtype)));
    }
    Watched& out = flight.watched[0];
    fill(input_cycle(kind), phase_of(message.src, salt) + 37 * k, out.expected.data() + out.at(out.data),
         message.count);
    return;
  }
  fail("received a message from " + std::to_string(got.peer) + " with tag " + std::to_string(got.tag) +
       " that nobody sent: " + print(step));
}

void Thread::receive_all(const Step& step, Member& member, uint64_t, const std::string& how,
                         std::vector<Flight>& flights, std::vector<std::unique_ptr<Handle>>& handles) {
  const std::vector<Message> list = messages(step, member);
  std::vector<int> mine;
  for (size_t k = 0; k < list.size(); ++k) {
    if (list[k].dst == member.me) mine.push_back(static_cast<int>(k));
  }
  if (how == "reverse") {
    // Messages of one pair and tag stay in order: the kth posted of them gets the kth sent.
    std::reverse(mine.begin(), mine.end());
  }
  for (int k : mine) {
    flights.push_back(recv_flight(step, member, list, k, kMessageSlot));
    Call& call = flights.back().call;
    if (how == "any" || how == "tag") call.root = kAnySource;
    if (how == "any" || how == "source") call.tag = kAnyTag;
    handles.emplace_back();
    must(member.group->start(call, &handles.back()), "recv: ");
  }
}

void Thread::exchange(const Step& step, Member& member) {
  finish_messages();
  const std::string mode = step.word("mode", "async"), name = step.word("name");
  std::string how = step.word("recv", "exact");
  if (mode == "blocking" || !member.deferred.empty()) how = how == "reverse" ? how : "exact";
  if (mode == "defer" && member.deferred.count(name) != 0) collect(name, member);
  const bool apart = how == "any" || how == "source" || how == "tag";
  const std::vector<Message> list = messages(step, member);
  const uint64_t salt = seat(step, member).salt;
  const auto barrier = [&](bool wanted) {
    if (wanted) must(member.group->run(Call{}), "barrier: ");
  };
  barrier(apart);
  std::vector<bool> seen(list.size(), false);
  if (mode == "blocking") {
    for (size_t k = 0; k < list.size(); ++k) {
      const Message& message = list[k];
      if (message.src == member.me) {
        Flight flight = send_flight(step, member, message, static_cast<int>(k), salt, kMessageSlot);
        must(member.group->run(flight.call), "send of message " + std::to_string(k) + ": ");
        check(flight, member);
      } else if (message.dst == member.me) {
        Flight flight = recv_flight(step, member, list, static_cast<int>(k), kMessageSlot);
        Work::Message got;
        must(member.group->run(flight.call, &got), "recv of message " + std::to_string(k) + ": ");
        expect_message(flight, step, member, list, seen, got, salt);
        check(flight, member);
      }
    }
    return;
  }
  std::vector<Flight> sends, receives;
  std::vector<std::unique_ptr<Handle>> sending, receiving;
  const auto send_all = [&](int slot) {
    for (size_t k = 0; k < list.size(); ++k) {
      if (list[k].src != member.me) continue;
      sends.push_back(send_flight(step, member, list[k], static_cast<int>(k), salt, slot));
      sending.emplace_back();
      must(member.group->start(sends.back().call, &sending.back()), "send: ");
    }
  };
  if (mode == "defer") {
    // Memory of its own for each name.
    send_all(kDeferredSlot + std::stoi("0" + name.substr(1)));
    member.deferred[name] = {&step, salt, std::move(sends), std::move(sending)};
    return;
  }
  if (mode == "async") receive_all(step, member, salt, how, receives, receiving);
  send_all(kMessageSlot);
  barrier(mode == "late");
  if (mode == "late") receive_all(step, member, salt, how, receives, receiving);
  for (size_t i = 0; i < receiving.size(); ++i) {
    must(receiving[i]->wait(), "recv: ");
    expect_message(receives[i], step, member, list, seen, receiving[i]->message(), salt);
    check(receives[i], member);
  }
  for (size_t i = 0; i < sending.size(); ++i) {
    must(sending[i]->wait(), "send: ");
    check(sends[i], member);
  }
  barrier(apart);
}

void Thread::collect(const std::string& name, Member& member, bool) {
  const auto found = member.deferred.find(name);
  if (found == member.deferred.end()) return;
  Deferred& deferred = found->second;
  const std::vector<Message> list = messages(*deferred.step, member);
  std::vector<bool> seen(list.size(), false);
  std::vector<Flight> receives;
  std::vector<std::unique_ptr<Handle>> receiving;
  receive_all(*deferred.step, member, deferred.salt, "exact", receives, receiving);
  for (size_t i = 0; i < receiving.size(); ++i) {
    must(receiving[i]->wait(), "recv of a deferred message: ");
    expect_message(receives[i], *deferred.step, member, list, seen, receiving[i]->message(), deferred.salt);
    check(receives[i], member);
  }
  for (size_t i = 0; i < deferred.sends.size(); ++i) {
    must(deferred.sends[i]->wait(), "deferred send: ");
    check(deferred.flights[i], member);
  }
  member.deferred.erase(found);
}

void Thread::shift(const Step& step, Member& member) {
  finish_messages();
  const int n = member.size(), by = static_cast<int>(step.number("by", 1)) % n;
  if (by == 0) return;
  const uint64_t salt = seat(step, member).salt;
  const Message to{member.me, (member.me + by) % n, static_cast<int>(step.number("tag")),
                   static_cast<uint64_t>(step.number("count"))};
  const Message from{(member.me + n - by) % n, member.me, to.tag, to.count};
  Flight out = send_flight(step, member, to, 0, salt, kMessageSlot);
  Flight in = recv_flight(step, member, {from}, 0, kMessageSlot);
  Call call = in.call;
  call.verb = Verb::kSendRecv;
  call.in = out.call.in;
  call.to = to.dst;
  Work::Message got;
  must(member.group->run(call, &got), "");
  std::vector<bool> seen(1, false);
  expect_message(in, step, member, {from}, seen, got, salt);
  check(in, member);
  check(out, member);
}

// --- Compression

void Thread::sparse(const Step& step, Member& member) {
  const auto count = static_cast<uint64_t>(step.number("count"));
  const Seat here = seat(step, member);
  const Kind kind{DType::kFloat32, Op::kSum, here.members, false};
  std::vector<std::vector<float>> inputs;
  for (int m = 0; m < here.members; ++m) {
    inputs.emplace_back(count);
    fill(input_cycle(kind), phase_of(m, here.salt), reinterpret_cast<std::byte*>(inputs.back().data()), count);
  }
  const std::vector<uint64_t> tensors = step.numbers("tensors");
  const bool residual = step.number("residual") != 0, inside = step.number("place") != 0;
  SparseOptions options;
  options.spars = step.real("spars", 0.05);
  options.tensors = tensors;
  if (step.word("select") == "threshold") options.select = Select::kThreshold;
  if (step.word("select") == "sampled") options.select = Select::kSampledTopK;
  if (residual) options.residual = memory_.residual(step.line, count).data();
  SparseModel& model = sparse_[step.line];
  if (model.residuals.size() != inputs.size()) model.residuals.clear();
  model.step(inputs, options.select == Select::kThreshold, options.spars, residual, tensors);

  Flight flight;
  flight.step = &step;
  const size_t bytes = count * sizeof(float);
  Watched out = memory_.take({0, 0, 1}, step.of_member("out", here.me, "p"), bytes, flight.fresh);
  Watched in = inside ? out : memory_.take({0, 0, 0}, step.of_member("in", here.me, "p"), bytes, flight.fresh);
  out.dtype = in.dtype = DType::kFloat32;
  std::memcpy(in.data, inputs[static_cast<size_t>(here.me)].data(), bytes);
  in.expected.assign(in.begin, in.data + bytes + kGuardBytes);
  out.expected.assign(out.begin, out.data + bytes + kGuardBytes);
  std::memcpy(out.expected.data() + out.at(out.data), model.sum.data(), bytes);
  const auto* input = reinterpret_cast<const float*>(in.data);
  auto* output = reinterpret_cast<float*>(out.data);
  flight.watched.push_back(std::move(out));
  if (!inside) flight.watched.push_back(std::move(in));
  must(member.group->sparse(input, output, count, options), "");
  check(flight, member);
  if (residual && memory_.residual(step.line, count) != model.residuals[static_cast<size_t>(here.me)]) {
    fail("the residual is wrong");
  }
}

void Thread::distopt(const Step&, Member&) {}

// --- Mistakes, departures

Error Thread::attempt(const Step& step, Member& member, bool* got) {
  *got = false;
  if (step.verb == "split") {
    std::unique_ptr<Group> made;
    const Error error = member.group->split(static_cast<int>(step.number("color")), 0, &made);
    *got = error.ok();
    return error;
  }
  if (step.verb == "attach") return member.group->attach_device();
  if (step.verb == "sparse") {
    std::vector<float> values(static_cast<size_t>(step.number("count")), 1.0f + static_cast<float>(member.me));
    const Error error = member.group->sparse(values.data(), values.data(), values.size(), {});
    *got = error.ok();
    return error;
  }
  Flight flight = make_flight(step, seat(step, member), 0, 0, memory_);
  const Error error = member.group->run(flight.call);
  // What those give that made this call, a root for example, is right; data of another call is not.
  *got = error.ok() && flight.gets_data && !flight.check().empty();
  return error;
}

void Thread::disagree(const Step& step, int number, Member& member) {
  if (member.size() < 2 || step.inner.size() != 2) return;
  while (!member.deferred.empty()) collect(member.deferred.begin()->first, member);
  for (int slot = 1; slot < kSlots; ++slot) finish(slot);
  const int odd = static_cast<int>(step.number("odd")) % member.size();
  bool got = false;
  const Step& mine = step.inner[member.me == odd ? 1 : 0];
  Error error = attempt(mine, member, &got);
  if (got) fail("'" + print(mine) + "' succeeded, although not all made this call");
  // Some calls end at once on ranks that get no data; the others' failure may reach this rank behind a barrier, too.
  for (int i = 0; i < kBarriers && (error.ok() || error.code == ErrorCode::kUnsupported); ++i) {
    error = member.group->run(Call{});
  }
  if (error.code != ErrorCode::kMismatch) fail("after '" + print(mine) + "' not MISMATCH but " + said(error));
  if (number == 0) throw Over("");
  drop(number);
}

Error Thread::sum_until_failure(Member& member) {
  std::vector<float> values(5000, 1);
  Call call;
  call.verb = Verb::kAllReduce;
  call.in = call.out = values.data();
  call.count = values.size();
  for (;;) {
    if (Error error = member.group->run(call); !error.ok()) return error;
  }
}

void Thread::departure(const Step& step, int number, Member& member) {
  if (member.size() < 2) return;
  while (!member.deferred.empty()) collect(member.deferred.begin()->first, member);
  for (int slot = 1; slot < kSlots; ++slot) finish(slot);
  const int by = static_cast<int>(step.number("by")) % member.size();
  ErrorCode code = ErrorCode::kAborted;
  if (step.verb == "leave") code = ErrorCode::kPeerLeft;
  if (step.verb == "kill") code = ErrorCode::kPeerLost;
  // Nobody dies while others are in the lines before; in the barrier it may.
  Error error;
  if (step.verb == "kill") error = member.group->run(Call{});
  if (member.me == by) {
    must(error, "barrier: ");
    if (step.verb == "kill") ::kill(::getpid(), SIGKILL);
    if (step.verb == "abort") {
      must(member.group->abort("this rank has had enough"), "");
      error = member.group->run(Call{});
      if (error.code != code || !blames(error, by)) fail("after abort: " + said(error));
    }
  } else {
    if (error.ok()) error = sum_until_failure(member);
    if (error.code != code || !blames(error, by)) {
      fail("must be " + std::string(error_code_name(code)) + " naming " + std::to_string(by) + ", is " + said(error));
    }
  }
  if (number == 0) throw Over("");
  drop(number);
}

// Runs what must be INVALID; "" or what is wrong.
void Thread::bad(const Step& step, Member& member) {
  if (step.of_member("by", member.me, "1") != "1") return;
  const std::string what = step.word("what");
  if (what == "counts" && member.group->communicator() == nullptr) return;  // C passes no length
  Group& group = *member.group;
  constexpr size_t kCount = 1000;
  std::vector<float> values(kCount, 1.5f), other(kCount, 2.5f), residual(kCount, 0.5f);
  const std::vector<float> before = values, residual_before = residual;
  SparseOptions options;
  options.residual = residual.data();
  Call call;
  call.verb = Verb::kAllReduce;
  call.in = call.out = values.data();
  call.count = 4;
  Error error;
  const auto in_batch = [&](const auto& function) {
    must(group.batch_begin(), "batch_begin: ");
    error = function();
    must(group.batch_end(nullptr), "batch_end after " + what + ": ");
  };
  std::unique_ptr<Group> made;
  if (what == "sparse_in_batch") {
    in_batch([&] { return group.sparse(values.data(), values.data(), kCount, options); });
  } else if (what == "split_in_batch") {
    in_batch([&] { return group.split(0, 0, &made); });
  } else if (what == "new_group_in_batch") {
    in_batch([&] { return group.new_group({member.me}, &made); });
  } else if (what == "begin_in_batch") {
    in_batch([&] { return group.batch_begin(); });
  } else if (what == "end") {
    error = group.batch_end(nullptr);
  } else if (what == "spars") {
    options.spars = 0;
    error = group.sparse(values.data(), values.data(), kCount, options);
  } else if (what == "tensors") {
    const std::vector<uint64_t> tensors = {UINT64_MAX - 9, kCount + 10};
    options.tensors = tensors;
    error = group.sparse(values.data(), values.data(), kCount, options);
  } else {
    if (what == "null") call.in = call.out = nullptr;
    if (what == "op") call.op = Op::kBitAnd;
    if (what == "timeout") call.options.timeout = std::chrono::milliseconds(-1);
    if (what == "overlap") call.out = values.data() + 1;
    if (what == "root") call.verb = Verb::kBroadcast;
    if (what == "root") call.root = member.size();
    if (what == "peer" || what == "tag") call.verb = Verb::kSend;
    if (what == "peer") call.root = member.size();
    if (what == "tag") call.tag = -5;
    if (what == "counts") call.verb = Verb::kAllGatherV;
    if (what == "counts") call.counts.assign(static_cast<size_t>(member.size()) + 1, 1);
    if (what == "length") call.count = UINT64_MAX / 2;
    error = group.run(call);
  }
  if (error.code != ErrorCode::kInvalid) fail("must be INVALID, is " + said(error));
  if (values != before || residual != residual_before) fail("INVALID changed memory");
  if (!group.error().ok()) fail("the group has failed: " + said(group.error()));
}

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

}  // namespace

void Thread::hostile(const Step& step, Member& member) {
  if (member.size() < 2) return;
  for (int slot = 1; slot < kSlots; ++slot) finish(slot);
  const std::string what = step.word("what");
  const auto salt = static_cast<uint64_t>(step.number("salt"));
  const auto calls = static_cast<int>(step.number("times", 20));
  testing::Random random(salt);
  std::vector<float> values(4000, 1);
  const bool is_hostile = member.me == static_cast<int>(step.number("by")) % member.size();
  std::atomic<bool> stop{false};
  std::thread scribbler;
  if (is_hostile && what == "memory") scribbler = std::thread([&] { scribble(salt, stop); });
  // Nobody is in the lines before when the rubbish comes.
  Error error = member.group->run(Call{});
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
      // What a rank says of its selection: (selected, flags, count) and so on, of numbers that wrap.
      call.options.purpose = Purpose::kSparse;
      const uint64_t numbers[] = {uint64_t{1} << 63, UINT64_MAX,       0, 1, 4000, 4001,
                                  uint64_t{1} << 62, uint64_t{1} << 32};
      const uint64_t header[3] = {numbers[random.below(8)], random.below(3), 4000};
      std::vector<uint64_t> all(3 * static_cast<size_t>(member.size()));
      call.verb = Verb::kAllGather;
      call.in = header;
      call.out = all.data();
      call.count = 3;
      call.dtype = DType::kUint64;
      error = member.group->run(call);
      std::vector<uint32_t> words(100), output(10000);
      call.verb = Verb::kAllGatherV;
      call.in = words.data();
      call.out = output.data();
      call.dtype = DType::kUint32;
      call.counts.assign(static_cast<size_t>(member.size()), 2 * 40);
      call.counts[static_cast<size_t>(member.me)] = 2 * (header[0] & 15);
      if (error.ok()) error = member.group->run(call);
    }
  }
  stop.store(true);
  if (scribbler.joinable()) scribbler.join();
  // It is gone now, as far as the others can see; they need not be right, but must end.
  if (is_hostile && life_.ranks == Ranks::kProcesses) ::_exit(0);
  throw Over("");
}

// --- The process

namespace {

// All of one rank: its job, then its threads.
void play_round(const Life& life, int rank, Report& report, std::unique_ptr<Group> job) {
  try {
    std::vector<std::unique_ptr<Thread>> threads;
    std::vector<std::unique_ptr<Group>> owned(life.threads.size());
    for (size_t t = 0; t < life.threads.size(); ++t) {
      threads.push_back(std::make_unique<Thread>(life, rank, static_cast<int>(t), report, job.get()));
      if (t == 0) continue;
      const Error error = job->split(0, rank, &owned[t]);
      if (!error.ok()) throw Over("the split for thread " + std::to_string(t) + ": " + said(error));
    }
    std::vector<std::thread> running;
    for (size_t t = 1; t < threads.size(); ++t) {
      Group* group = owned[t].get();
      running.emplace_back([&, t, group] { threads[t]->play(group, std::move(owned[t])); });
    }
    if (!threads.empty()) threads[0]->play(job.get(), nullptr);
    for (std::thread& thread : running) thread.join();
    if (life.seed % 2 == 0) threads.clear();  // registered memory before the job, else after
    const Error error = job->destroy();
    if (!error.ok() && report.clean()) throw Over("destroy: " + said(error));
  } catch (const std::exception& error) {
    report.fault(error.what());
    job->abort(kOurAbort);
  }
}

}  // namespace

int play_life(const Life& life, int rank, const std::string& meeting, const std::string& folder) {
  const bool c = life.door(rank) == "c";
  std::vector<std::unique_ptr<Report>> reports;
  const bool all = life.ranks == Ranks::kThreads;
  for (int r = all ? 0 : rank; r < (all ? life.world : rank + 1); ++r) {
    reports.push_back(std::make_unique<Report>(folder, r));
  }
  const auto clean = [&] {
    return std::all_of(reports.begin(), reports.end(), [](const auto& report) { return report->clean(); });
  };
  for (int round = 0; round < life.rounds && clean(); ++round) {
    std::vector<std::unique_ptr<Group>> groups;
    if (all) {
      groups = c ? threads_c(life.world) : threads_cpp(life.world);
      std::vector<std::thread> ranks;
      for (int r = 0; r < life.world; ++r) {
        ranks.emplace_back([&, r] {
          play_round(life, r, *reports[static_cast<size_t>(r)], std::move(groups[static_cast<size_t>(r)]));
        });
      }
      for (std::thread& thread : ranks) thread.join();
      continue;
    }
    groups.emplace_back();
    const std::string place = meeting + "-" + std::to_string(round);
    const Error error = (c ? join_c : join_cpp)(rank, life.world, place, &groups[0]);
    if (!error.ok()) {
      reports[0]->fault("join: " + said(error));
    } else {
      play_round(life, rank, *reports[0], std::move(groups[0]));
    }
  }
  return clean() ? 0 : 1;
}

}  // namespace rondo::life
