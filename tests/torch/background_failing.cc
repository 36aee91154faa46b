// Tasks of background.cc where the system gives no thread.
#include <pthread.h>

#include <cerrno>
#include <cstdio>

#include "csrc/background.h"

// What std::thread calls.
extern "C" int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) noexcept { return EAGAIN; }

int main() {
  int done = 0;
  for (int i = 0; i < 3; ++i) rondo_torch::run_in_background([&done] { ++done; });
  std::printf("%d\n", done);
}
