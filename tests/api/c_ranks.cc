#include "tests/api/c_ranks.h"

#include <exception>
#include <thread>
#include <vector>

namespace rondo::testing {

void want(rondo_result_t got, rondo_result_t wanted) {
  expect(got == wanted,
         std::string(rondo_result_name(got)) + " instead of " + rondo_result_name(wanted) + ": " + rondo_last_error());
}

void want_text(rondo_result_t got, rondo_result_t wanted, const std::string& named) {
  want(got, wanted);
  expect(std::string(rondo_last_error()).find(named) != std::string::npos,
         std::string("\"") + rondo_last_error() + "\" lacks \"" + named + "\"");
}

std::string on_threads(int world, const std::function<void(rondo_comm_t, int)>& body) {
  std::vector<rondo_comm_t> comms(static_cast<size_t>(world));
  if (rondo_init_inproc(comms.data(), world) != RONDO_OK) return rondo_last_error();
  std::vector<std::string> troubles(comms.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      const auto r = static_cast<size_t>(rank);
      try {
        body(comms[r], rank);
      } catch (const std::exception& failure) {
        troubles[r] = failure.what();
        rondo_abort(comms[r], failure.what());
      }
      if (rondo_destroy(comms[r]) != RONDO_OK) troubles[r] += rondo_last_error();
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string all;
  for (const std::string& trouble : troubles) all += trouble.empty() ? "" : trouble + "\n";
  return all;
}

}  // namespace rondo::testing
