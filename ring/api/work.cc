#include "rondo/work.h"

#include <utility>

#include "ring/engine/progress/operation.h"

namespace rondo {

Work::Work() = default;
Work::Work(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
Work::Work(std::shared_ptr<Operation> over, const Message& message) : operation_(std::move(over)), message_(message) {}
Work::Work(const Work&) = default;
Work& Work::operator=(const Work&) = default;
Work::Work(Work&&) noexcept = default;
Work& Work::operator=(Work&&) noexcept = default;
Work::~Work() = default;

namespace {

Operation& checked(const std::shared_ptr<Operation>& operation) {
  if (!operation) throw Exception(ErrorCode::kInvalid, "this Work refers to no operation");
  return *operation;
}

}  // namespace

bool Work::valid() const { return operation_ != nullptr; }
bool Work::done() const { return checked(operation_).poll(); }

bool Work::wait(std::chrono::nanoseconds timeout) {
  Operation& operation = checked(operation_);
  const auto now = Clock::now();
  const bool forever = timeout > Clock::time_point::max() - now;
  operation.wait(forever ? Clock::time_point::max() : now + timeout);
  if (operation.failed()) throw Exception(operation.error());
  return operation.done();
}

void Work::wait() {
  Operation& operation = checked(operation_);
  operation.wait(Clock::time_point::max());
  if (operation.failed()) throw Exception(operation.error());
}

void Work::wait_on(void* stream) { checked(operation_).wait_on(stream); }

bool Work::cancel() { return checked(operation_).cancel(); }

std::optional<Error> Work::error() const {
  Operation& operation = checked(operation_);
  operation.poll();
  return operation.failed() ? std::optional<Error>(operation.error()) : std::nullopt;
}

void Work::on_end(EndFunction function) {
  Operation& operation = checked(operation_);
  if (!function) throw Exception(ErrorCode::kInvalid, "on_end() with an empty function");
  operation.on_end(std::move(function));
}

Message Work::message() const {
  const Operation& operation = checked(operation_);
  if (message_.peer >= 0) return message_;
  if (!operation.done() || operation.failed()) {
    throw Exception(ErrorCode::kInvalid, "message() of an operation that has not succeeded: wait for it first");
  }
  if (const Message* moved = operation.moved_message()) return *moved;
  throw Exception(ErrorCode::kInvalid, "message() of an operation that is no send and no receive");
}

}  // namespace rondo
