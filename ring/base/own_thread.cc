#include "ring/base/own_thread.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <string>
#include <system_error>
#include <utility>

#include "ring/base/caught.h"
#include "ring/base/log.h"
#include "rondo/error.h"

namespace rondo {
namespace {

// A new thread inherits the mask of the one that starts it.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// In a catch block. What fails here, for want of memory, is not reported: it would end the process.
void report_end(const char* name) noexcept {
  try {
    Logger().warn(std::string("the thread ") + name + " has ended: " + caught().message);
  } catch (...) {
  }
}

}  // namespace

std::thread start_own_thread(const char* name, std::function<void()> run) {
  const SignalsBlocked blocked;
  try {
    std::thread thread([name, run = std::move(run)] {
      try {
        run();
      } catch (...) {
        report_end(name);
      }
    });
    pthread_setname_np(thread.native_handle(), name);
    return thread;
  } catch (const std::system_error& failure) {  // pthread_create
    throw Exception(ErrorCode::kSystem, fmt::format("starting the thread {}: {}", name, failure.what()));
  }
}

}  // namespace rondo
