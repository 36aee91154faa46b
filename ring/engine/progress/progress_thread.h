#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "ring/engine/progress/progress_engine.h"

namespace rondo {

// Threads that are in a function of ProgressThread::call().
inline std::atomic<int> threads_in_end_functions{0};
// This thread is one of them.
bool in_end_function();
void refuse_wait_of_this_thread();
// Throws Exception(kInvalid) in such a function: while it waited, nothing would go on. Every blocking call asks, so it
// costs a load where no such function runs.
inline void refuse_wait_in_end_function() {
  if (threads_in_end_functions.load(std::memory_order_relaxed) != 0) refuse_wait_of_this_thread();
}

// One thread a join that progresses operations that no thread waits for, of all communicators. It polls while
// things move, and sleeps for all of these engines otherwise. It also calls the functions of Work::on_end().
class ProgressThread {
 public:
  ProgressThread(WaitPolicy policy, std::shared_ptr<Sleepers> sleepers)
      : polls_(policy), sleepers_(std::move(sleepers)) {}
  ~ProgressThread();  // stops the thread
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  // Starts the thread, unless it runs: before anything is submitted that is to be left to it. Throws
  // Exception(kSystem). Any thread.
  void start();
  bool started() const { return started_.load(std::memory_order_acquire); }
  // The engine may want the progress thread: at once, or, where it does not ask, within kLongestAside. Any thread;
  // never blocks.
  void poke(std::shared_ptr<ProgressEngine> engine, bool asks);
  // The engine gets messages, unexpected ones among them: messages that no receive waits for. A rank that waits for
  // long reads them: the peer that it waits for may itself wait until its message is read. Any thread.
  void add_inbox(const std::shared_ptr<ProgressEngine>& engine);
  // A pass of each such engine but one, where its lease is free. True if anything moved. Any thread.
  bool read_inboxes(const ProgressEngine* but);
  // The engine is over. Any thread; never blocks.
  void forget(const ProgressEngine& engine);

  // While the caller's threads make progress by themselves, it keeps aside, and sleeps between two looks: so long at
  // first, then twice as long each time, since a look takes the caller's core for some 25 us.
  static constexpr std::chrono::microseconds kAside{250}, kLongestAside{2000};

  // Runs it soon, on the thread, with no lock held; in the order of these calls. Requires start(). Any thread; never
  // blocks for long.
  void call(std::unique_ptr<EndCall> call) noexcept;
  // Waits until what call() got before has been called. Not in such a function.
  void finish_calls();

 private:
  void run();
  void turn();
  void fail_all(const Error& error);
  std::vector<std::shared_ptr<ProgressEngine>> claimed();
  void call_functions();
  bool has_functions();
  void rest(const std::vector<std::shared_ptr<ProgressEngine>>& engines);

  VainPolls polls_;                           // of the thread
  std::chrono::microseconds aside_ = kAside;  // until its next look; of the thread
  std::mutex mutex_;                          // of the fields up to thread_, and of its start
  std::vector<std::shared_ptr<ProgressEngine>>
      engines_;  // shared: an operation under way outlives its communicator's handle
  std::vector<std::weak_ptr<ProgressEngine>> inboxes_;
  EndCall *first_call_ = nullptr, *last_call_ = nullptr;  // owned
  uint64_t calls_asked_ = 0, calls_done_ = 0;
  std::condition_variable called_;
  std::thread thread_;
  std::atomic<bool> started_{false};
  const std::shared_ptr<Sleepers> sleepers_;  // the fabric's
  Doorbell bell_{sleepers_};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> looks_soon_{false};  // it looks within kLongestAside
};

}  // namespace rondo
