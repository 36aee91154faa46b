#include "tests/simulation/machine.h"

#include <cxxabi.h>
#include <link.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace rondo::testing::sim {
namespace {

constexpr size_t kStackBytes = 512 * 1024;  // of address space; pages are touched as they are needed

Machine* current_machine = nullptr;
Fiber* running = nullptr;

// This program's own thread-local variables, of which each simulated thread has a copy: those of the library and of
// Asio, since tests link statically.
struct ThreadLocals {
  char* place = nullptr;
  size_t bytes = 0;
  std::vector<char> initial;
};

int find_thread_locals(dl_phdr_info* info, size_t, void* found) {
  auto& locals = *static_cast<ThreadLocals*>(found);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_TLS) continue;
    locals.place = static_cast<char*>(info->dlpi_tls_data);
    locals.bytes = part.p_memsz;
    locals.initial.assign(part.p_memsz, 0);
    std::memcpy(locals.initial.data(), reinterpret_cast<char*>(info->dlpi_addr + part.p_vaddr), part.p_filesz);
  }
  return 1;  // the first is the program
}

const ThreadLocals& thread_locals() {
  static const ThreadLocals locals = [] {
    ThreadLocals found;
    dl_iterate_phdr(find_thread_locals, &found);
    return found;
  }();
  return locals;
}

// What the C++ runtime keeps of exceptions that are being handled.
struct Exceptions {
  void* caught = nullptr;
  unsigned int uncaught = 0;
};

}  // namespace

struct Fiber {
  Process* process = nullptr;
  uint64_t number = 0;
  void* (*body)(void*) = nullptr;
  void* argument = nullptr;
  std::function<void()> main;
  ucontext_t context{}, back{};
  void* stack = nullptr;
  std::vector<char> locals, spare;
  Exceptions exceptions;
  int error = 0;  // errno

  bool done = false;
  bool waits = false;
  bool was_ready = false;
  std::function<bool()> ready;
  Time deadline = kNever;

  void exchange_state() {
    const ThreadLocals& all = thread_locals();
    std::memcpy(spare.data(), all.place, all.bytes);
    std::memcpy(all.place, locals.data(), all.bytes);
    locals.swap(spare);
    std::swap(error, errno);
    std::swap(exceptions, *reinterpret_cast<Exceptions*>(abi::__cxa_get_globals()));
  }
};

namespace {

void enter() {
  Fiber& self = *running;
  if (self.main) {
    self.main();
  } else {
    self.body(self.argument);
  }
  self.done = true;
  swapcontext(&self.context, &self.back);
  std::abort();
}

}  // namespace

Machine::Machine(uint64_t seed) : random_(seed) { current_machine = this; }
// Threads that have not ended keep their stacks and what is on them.
Machine::~Machine() { current_machine = nullptr; }

Machine* Machine::current() { return running != nullptr ? current_machine : nullptr; }
Process* Machine::process() { return running != nullptr ? running->process : nullptr; }

Fiber* Machine::thread() { return running; }

Process& Machine::spawn(int host, std::function<void()> main) {
  auto made = std::make_unique<Process>();
  Process& process = *made;
  process.machine = this;
  process.pid = next_pid_++;
  process.host = host;
  processes_[process.pid] = std::move(made);
  ++alive_;
  fibers_.push_back(std::make_unique<Fiber>());
  Fiber& fiber = *fibers_.back();
  fiber.process = &process;
  fiber.main = std::move(main);
  make_ready(fiber);
  ++process.threads;
  return process;
}

Process* Machine::find(int pid) {
  const auto found = processes_.find(pid);
  return found == processes_.end() ? nullptr : found->second.get();
}

Fiber* Machine::start_thread(void* (*body)(void*), void* argument) {
  fibers_.push_back(std::make_unique<Fiber>());
  Fiber& fiber = *fibers_.back();
  fiber.process = running->process;
  fiber.body = body;
  fiber.argument = argument;
  ++fiber.process->threads;
  make_ready(fiber);
  return &fiber;
}

bool Machine::join(Fiber* thread) {
  return wait([thread] { return thread->done; }, kNever);
}

void Machine::end(Process& process) {
  if (process.ended) return;
  process.ended = true;
  --alive_;
  Fiber* const caller = std::exchange(running, nullptr);
  for (const auto& close : std::exchange(process.on_end, {})) close();
  running = caller;
  if (caller != nullptr && caller->process == &process) leave();
}

void Machine::stop(Process& process, Time until) {
  process.stopped_until = std::max(process.stopped_until, until);
  at(process.stopped_until, [this, &process] {
    if (now_ < process.stopped_until) return;
    for (Fiber* fiber : std::exchange(process.held, {})) ready_.push_back(fiber);
  });
}

void Machine::at(Time time, std::function<void()> event) {
  events_.emplace(std::pair(std::max(time, now_), order_++), std::move(event));
}

void Machine::changed(Process& process) {
  if (process.changed || process.sleeping.empty()) return;
  process.changed = true;
  changed_.push_back(&process);
}

void Machine::make_ready(Fiber& fiber) {
  if (fiber.number == 0) fiber.number = fibers_.size();
  ready_.push_back(&fiber);
}

void Machine::wake(Fiber& fiber, bool ready) {
  fiber.was_ready = ready;
  fiber.waits = false;
  fiber.process->sleeping.erase(&fiber);
  if (fiber.deadline != kNever) deadlines_.erase({fiber.deadline, fiber.number});
  make_ready(fiber);
}

void Machine::look_at(Process& process) {
  process.changed = false;
  std::vector<Fiber*> sleeping(process.sleeping.begin(), process.sleeping.end());
  std::sort(sleeping.begin(), sleeping.end(), [](Fiber* a, Fiber* b) { return a->number < b->number; });
  for (Fiber* fiber : sleeping) {
    if (fiber->ready()) wake(*fiber, true);
  }
}

Fiber* Machine::next_fiber() {
  while (!ready_.empty()) {
    std::swap(ready_[random_.below(ready_.size())], ready_.back());
    Fiber* const fiber = ready_.back();
    ready_.pop_back();
    Process& process = *fiber->process;
    if (process.ended) continue;
    if (process.stopped_until > now_) {
      process.held.push_back(fiber);
      continue;
    }
    return fiber;
  }
  return nullptr;
}

bool Machine::run(const std::function<void(uint64_t)>& before, Time until) {
  while (alive_ > 0 && now_ < until) {
    before(steps_++);
    while (!changed_.empty()) {
      Process* const process = changed_.back();
      changed_.pop_back();
      if (!process->ended) look_at(*process);
    }
    while (!deadlines_.empty() && deadlines_.begin()->first.first <= now_) {
      Fiber& fiber = *deadlines_.begin()->second;
      wake(fiber, fiber.process->ended || fiber.ready());
    }
    if (!events_.empty() && events_.begin()->first.first <= now_) {
      auto event = events_.extract(events_.begin());
      digest_ = mix64(digest_ ^ static_cast<uint64_t>(event.key().first));
      event.mapped()();
      continue;
    }
    if (Fiber* const fiber = next_fiber()) {
      now_ += static_cast<Time>(random_.below(2 * kMicrosecond));
      resume(*fiber);
      continue;
    }
    Time next = kNever;
    if (!events_.empty()) next = std::min(next, events_.begin()->first.first);
    if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first.first);
    if (next == kNever) break;
    now_ = std::max(now_, next);
  }
  return alive_ == 0;
}

std::string Machine::living() const {
  std::string text;
  for (const auto& [pid, process] : processes_) {
    if (!process->ended) text += (text.empty() ? "" : ", ") + std::to_string(pid);
  }
  return text;
}

void Machine::resume(Fiber& fiber) {
  if (fiber.stack == nullptr) {
    fiber.stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    fiber.locals = fiber.spare = thread_locals().initial;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, enter, 0);
  }
  digest_ = mix64(digest_ ^ (fiber.number << 48) ^ static_cast<uint64_t>(now_));
  running = &fiber;
  fiber.exchange_state();
  swapcontext(&fiber.back, &fiber.context);
  fiber.exchange_state();
  running = nullptr;
  if (!fiber.done) return;
  munmap(fiber.stack, kStackBytes);
  fiber.stack = nullptr;
  --fiber.process->threads;
  changed(*fiber.process);
  if (fiber.main) end(*fiber.process);
}

void Machine::leave() {
  Fiber& self = *running;
  swapcontext(&self.context, &self.back);
}

bool Machine::wait(std::function<bool()> ready, Time deadline) {
  if (ready()) return true;
  if (deadline <= now_) return false;
  Fiber& self = *running;
  self.ready = std::move(ready);
  self.deadline = deadline;
  self.waits = true;
  self.process->sleeping.insert(&self);
  if (deadline != kNever) deadlines_.emplace(std::pair(deadline, self.number), &self);
  leave();
  self.ready = nullptr;
  return self.was_ready;
}

void Machine::yield() {
  make_ready(*running);
  leave();
}

void Machine::point() {
  now_ += kClockCost;
  if (random_.below(16) == 0) yield();
}

}  // namespace rondo::testing::sim
