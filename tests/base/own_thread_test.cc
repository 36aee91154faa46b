#include "ring/base/own_thread.h"

#include <doctest/doctest.h>
#include <pthread.h>
#include <signal.h>

#include <new>
#include <stdexcept>
#include <string>

#include "rondo/log.h"

namespace rondo {

TEST_CASE("a thread of the library's own has its name and no signals, and its maker keeps the mask that it had") {
  sigset_t own, before, after, inside;
  sigemptyset(&own);
  sigaddset(&own, SIGUSR2);
  REQUIRE(pthread_sigmask(SIG_SETMASK, &own, &before) == 0);
  char name[16] = "";
  start_own_thread("rondo-test", [&] {
    pthread_sigmask(SIG_SETMASK, nullptr, &inside);
    pthread_getname_np(pthread_self(), name, sizeof name);
    // The maker may name it a moment later.
    while (std::string(name) != "rondo-test") pthread_getname_np(pthread_self(), name, sizeof name);
  }).join();
  REQUIRE(pthread_sigmask(SIG_SETMASK, &before, &after) == 0);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD, SIGALRM}) {
    CAPTURE(number);
    CHECK(sigismember(&inside, number) == 1);
    CHECK(sigismember(&after, number) == (number == SIGUSR2 ? 1 : 0));
  }
}

TEST_CASE("an exception ends its thread, not the process, and the log says why") {
  std::string said;
  set_log_function([](void* context, int, int, const char* text) { *static_cast<std::string*>(context) += text; },
                   &said);
  start_own_thread("rondo-test", [] { throw std::runtime_error("out of luck"); }).join();
  set_log_function(nullptr, nullptr);
  CHECK(said == "the thread rondo-test has ended: an unexpected exception: out of luck");
}

TEST_CASE("an exception ends its thread, not the process, also where its line cannot be logged") {
  set_log_function([](void*, int, int, const char*) { throw std::bad_alloc(); }, nullptr);
  start_own_thread("rondo-test", [] { throw std::runtime_error("of a test"); }).join();
  set_log_function(nullptr, nullptr);
}

}  // namespace rondo
