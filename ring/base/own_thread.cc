#include "ring/base/own_thread.h"

#include <fmt/format.h>
#include <pthread.h>

#include <string>
#include <system_error>
#include <utility>

#include "ring/base/caught.h"
#include "ring/base/log.h"
#include "ring/base/signals_blocked.h"
#include "rondo/error.h"

namespace rondo {
namespace {

// In a catch block. An error in here, for want of memory, is dropped: it would end the process.
void report_end(const char* name) noexcept {
  try {
    Logger().warn(std::string("the thread ") + name + " has ended: " + caught().message);
  } catch (...) {
  }
}

}  // namespace

std::thread start_own_thread(const char* name, std::function<void()> run) {
  const SignalsBlocked blocked;  // a new thread inherits the mask of the one that starts it
  try {
    std::thread thread([name, run = std::move(run)] {
      try {
        run();
      } catch (...) {
        report_end(name);
      }
    });
    // A name that is too long is refused, which changes nothing else.
    pthread_setname_np(thread.native_handle(), name);
    return thread;
  } catch (const std::system_error& failure) {  // pthread_create
    throw Exception(ErrorCode::kSystem, fmt::format("starting the thread {}: {}", name, failure.what()));
  }
}

}  // namespace rondo
