// The threads that Rondo adds to a program leave its signals to its own threads.
#include <doctest/doctest.h>

#include <csignal>
#include <set>
#include <string>
#include <vector>

#include "rondo/communicator.h"
#include "tests/support/rank_group.h"
#include "tests/support/resources.h"

namespace rondo::testing {

TEST_CASE("own threads: of sockets and the progress thread, none takes the program's signals") {
  RankGroup group;
  group.config.transport = "tcp";
  const std::string failed = run_processes(group, [](Communicator& communicator) {
    std::vector<float> data(1 << 20, 1.0f);
    Call call;
    call.input = call.output = data.data();
    call.count = data.size();
    communicator.start(call).wait();
    communicator.all_reduce(data.data(), data.data(), data.size(), DType::kFloat32);
    std::set<std::string> names;
    for (const std::string& status : status_of_threads("rondo-")) {
      const std::string name = field_of(status, "Name:");
      names.insert(name);
      const uint64_t blocked = std::stoull(field_of(status, "SigBlk:"), nullptr, 16);  // bit n - 1 for signal n
      for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM}) {
        expect((blocked >> (number - 1) & 1) != 0, name + " takes signal " + std::to_string(number));
      }
    }
    for (const char* name : {"rondo-io", "rondo-progress"}) {
      expect(names.count(name) == 1, std::string("no thread is called ") + name);
    }
  });
  CHECK(failed == "");
}

}  // namespace rondo::testing
