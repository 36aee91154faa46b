#pragma once

// How every call of RondoBackend goes its way: inline, as a Work, or as part of a group.

#include <ATen/record_function.h>

#include "csrc/backend.h"
#include "csrc/errors.h"

namespace rondo_torch {

inline bool profiled() { return at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value(); }

// What ends a call: its results go where its tensors are. The buffers live until then.
inline auto after(const Block& source, const Block& target) {
  return [source, target] { target.write_back(); };
}

// The library's call, as run() starts it: by the blocking form, or with a work. `call` must outlive it.
inline auto RondoBackend::collective(const rondo_call_t& call) const {
  return [this, &call](rondo_work_t* work) {
    return work == nullptr ? rondo_run(comm_, &call) : rondo_start(comm_, &call, work);
  };
}

template <typename Start>
WorkPointer RondoBackend::run(Call call, const Tensors& inputs, bool async, Start start, Kind kind) {
  if (groups_here()) return run_grouped(std::move(call), start, kind);
  Use use(*this);
  if (kind == Kind::kCollective) sequence_number_.fetch_add(1, std::memory_order_relaxed);
  const bool recorded = profiled();
  if (!async && !recorded) {
    check(start(nullptr));
    if (call.after) call.after();
    return nullptr;
  }
  const c10d::OpType type = call.type;
  const char* title = recorded ? call.title : nullptr;
  auto operation = std::make_shared<Operation>();
  WorkPointer made = work_of(type, title, inputs, operation);
  // Nothing that needs memory comes after the start.
  operation->add(std::move(call));
  std::vector<rondo_work_t> works(1);
  check(start(&works[0]));
  operation->start(std::move(works));
  if (async) return made;
  made->wait();
  return nullptr;
}

template <typename Start>
WorkPointer RondoBackend::run_grouped(Call call, Start start, Kind kind) {
  Use use(*this);
  rondo_work_t work = nullptr;
  check(start(&work));
  size_t index = 0;
  if (kind == Kind::kMessage) {
    index = group_->works.size();
    group_->works.push_back(work);
  } else {
    sequence_number_.fetch_add(1, std::memory_order_relaxed);
    rondo_work_free(work);
  }
  group_->stream = InStream::here();
  const c10d::OpType type = call.type;
  group_->operation->add(std::move(call));
  return work_of(type, nullptr, {}, group_->operation, index);
}

template <typename Body>
WorkPointer RondoBackend::run_as_group(c10d::OpType type, const char* title, const Tensors& inputs, bool async,
                                       Body body) {
  const bool outer = groups_here();
  if (!outer) startCoalescing();
  try {
    body();
  } catch (...) {
    if (!outer) abandon_group();
    throw;
  }
  if (outer) return nullptr;
  WorkPointer work = end_group(type, title, inputs);
  if (async) return work;
  work->wait();
  return nullptr;
}

}  // namespace rondo_torch
