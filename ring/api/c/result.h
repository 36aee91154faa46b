#pragma once

#include <exception>
#include <new>

#include "ring/base/interrupt.h"
#include "rondo/error.h"
#include "rondo/rondo.h"

namespace rondo::c {

// Keeps the failure as this thread's last one, and returns its code. Also takes a pending interruption: this
// failure reports it.
rondo_result_t failed(const Error& error) noexcept;
rondo_result_t failed(ErrorCode code, const char* message) noexcept;

// Throws Exception(kInterrupted) if the program has ended a wait of this call. Asked before a result is handed
// out.
inline void refuse_interrupted() {
  if (take_interruption()) throw Exception(ErrorCode::kInterrupted, "the program has ended this call");
}

// Runs `action`, and turns what it throws into a code and the last error. No exception leaves it.
template <typename Action>
rondo_result_t guarded(Action action) noexcept {
  try {
    action();
    // An operation may succeed while the program's function asks to end the wait: the call still ends as interrupted.
    refuse_interrupted();
    return RONDO_OK;
  } catch (const Exception& e) {
    return failed(e.error());
  } catch (const std::bad_alloc&) {
    return failed(ErrorCode::kSystem, "out of memory");
  } catch (const std::exception& e) {
    return failed(ErrorCode::kInternal, e.what());
  } catch (...) {
    return failed(ErrorCode::kInternal, "an unknown exception");
  }
}

}  // namespace rondo::c
