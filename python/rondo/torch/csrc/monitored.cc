#include "csrc/monitored.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "csrc/errors.h"
#include "csrc/operators.h"

namespace rondo_torch {

namespace {

constexpr const char* kResult = "result";
constexpr const char* kPassed = "passed";  // the value of the result; else it is what rank 0 raises

std::string joined(const std::vector<int>& ranks) {
  std::string text;
  for (int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

// The words are those of gloo's barrier: programs look for them.
std::string failure_text(const std::vector<int>& absent, std::chrono::milliseconds timeout, bool every_rank) {
  const std::string end = " failed to pass monitoredBarrier in " + std::to_string(timeout.count()) + " ms";
  if (absent.size() == 1) return "Rank " + joined(absent) + end;
  if (every_rank) return "Ranks " + joined(absent) + end;
  return "Rank " + std::to_string(absent[0]) + end + ", nor did the others of the ranks " + joined(absent);
}

}  // namespace

MonitoredBarriers::MonitoredBarriers(c10::intrusive_ptr<c10d::Store> store, std::string prefix, int rank, int size)
    : store_(std::move(store)), prefix_(std::move(prefix)), rank_(rank), size_(size) {}

void MonitoredBarriers::pass(std::chrono::milliseconds timeout, bool every_rank) {
  const auto free = [](bool taken) { return !taken; };
  if (taken_.when(free, timeout, [](bool& taken) { return std::exchange(taken, true); })) {
    fail("monitoredBarrier on rank " + std::to_string(rank_) + ": another thread's has not ended after " +
         std::to_string(timeout.count()) + " ms");
  }
  const auto give_back = [](Locked<bool>* turn) {
    turn->with([](bool& taken) { taken = false; });
    turn->notify_one();
  };
  const std::unique_ptr<Locked<bool>, decltype(give_back)> turn(&taken_, give_back);
  ++number_;
  if (rank_ == 0) {
    collect(timeout, every_rank);
  } else {
    report(timeout);
  }
}

void MonitoredBarriers::collect(std::chrono::milliseconds timeout, bool every_rank) {
  if (timeout.count() == 0) fail("Rank 0 timed out in monitoredBarrier after 0 ms");
  const Clock::time_point deadline = Clock::now() + timeout;
  store_->set(key(number_, "0"), std::string("here"));
  std::vector<int> absent;
  for (int rank = 1; rank < size_; ++rank) {
    const std::string name = key(number_, std::to_string(rank));
    if (!await(name, deadline)) absent.push_back(rank);
    forget(name);
  }
  const std::string text = absent.empty() ? kPassed : failure_text(absent, timeout, every_rank);
  store_->set(key(number_, kResult), text);
  if (!absent.empty()) fail(text);
  for (const char* what : {"0", kResult}) forget(key(number_ - 1, what));  // all ranks are here: they have read it
}

// Rank 0 may have come later than this rank, and takes its whole timeout from then on.
void MonitoredBarriers::report(std::chrono::milliseconds timeout) {
  constexpr std::chrono::seconds kToAnswer{5};  // rank 0, on a busy machine, after its timeout
  const std::string result = key(number_, kResult);
  store_->set(key(number_, std::to_string(rank_)), std::string("here"));
  std::string text = "rank 0 did not come";
  if (await(key(number_, "0"), Clock::now() + timeout)) {
    const bool answered = await(result, Clock::now() + timeout + kToAnswer);
    text = answered ? store_->get_to_str(result) : "rank 0 came, and has not answered";
  }
  if (text == kPassed) return;
  fail("Rank " + std::to_string(rank_) +
       " successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0: " + text);
}

// By check(), not by the store's wait(), which hears no signal. Pauses grow with the time that has passed.
bool MonitoredBarriers::await(const std::string& key, Clock::time_point deadline) {
  static const auto hear_signals = operator_named<void()>("rondo::_hear_signals");
  const auto begin = Clock::now();
  while (!store_->check({key})) {
    const auto now = Clock::now();
    if (now >= deadline) return store_->check({key});
    hear_signals.call();
    const auto pause =
        std::clamp<Clock::duration>((now - begin) / 8, std::chrono::milliseconds(1), std::chrono::milliseconds(50));
    std::this_thread::sleep_for(std::min(pause, deadline - now));
  }
  return true;
}

std::string MonitoredBarriers::key(int64_t number, const std::string& what) const {
  return prefix_ + std::to_string(number) + "/" + what;
}

// Some stores cannot delete.
void MonitoredBarriers::forget(const std::string& key) {
  try {
    store_->deleteKey(key);
  } catch (const std::exception&) {
  }
}

}  // namespace rondo_torch
