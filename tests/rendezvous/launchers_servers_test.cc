// Ranks meet through the launcher's PMI or PMIx server: where rank 0 cannot serve the store the others say why at once,
// and an interruption ends a wait for it.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <chrono>
#include <string>
#include <vector>

#include "rondo/error.h"
#include "rondo/interrupt.h"
#include "tests/rendezvous/fake_pmi.h"
#include "tests/rendezvous/test_jobs.h"
#include "tests/support/child.h"
#include "transport/rendezvous/launch.h"
#include "transport/tcp/listener.h"

namespace rondo {
namespace {

using test::soon;
using testing::Child;

// "ok", or the error.
std::string outcome_of_meeting(const Launch& launch, const std::string& interface) {
  const int rank = launch.place.rank;
  Config config;
  config.debug = "off";
  config.insecure = true;
  config.socket_interface = interface;
  try {
    const auto store = open_store(launch, config, soon());
    if (rank == 0) return store->get("k", soon());
    store->put("k", "ok", soon());
    return "ok";
  } catch (const Exception& failure) {
    return fmt::format("{} [{}] {}", error_code_name(failure.code()), fmt::join(failure.error().ranks, ","),
                       failure.what());
  }
}

std::string outcome_of_meeting(int rank, const std::string& rendezvous, const std::string& interface) {
  Launch launch = test::launch(rank, 2, rendezvous);
  launch.place = Place{rank, 2, 0, 1, rank, 2};
  launch.one_host = false;
  return outcome_of_meeting(launch, interface);
}

// In a /tmp of this process's own the folder for sockets is open to others. False: that needs root.
bool open_private_folder() {
  const std::string folder = private_directory();
  return ::unshare(CLONE_NEWNS) == 0 && ::mount("", "/", nullptr, MS_PRIVATE | MS_REC, nullptr) == 0 &&
         ::mount("tmpfs", "/tmp", "tmpfs", 0, nullptr) == 0 && ::mkdir(folder.c_str(), 0755) == 0 &&
         ::chmod(folder.c_str(), 0755) == 0;
}

void open_fake_pmix(const std::string& folder) {
  ::setenv("FAKE_PMIX", folder.c_str(), 1);
  if (::dlopen("tests/rendezvous/libpmix.so.2", RTLD_NOW) == nullptr) ::abort();
}

TEST_CASE("where rank 0 cannot serve the store the others say why, long before their deadline") {
  for (const std::string rendezvous : {"pmi:", "pmix:"}) {
    for (const std::string interface : {"lo", "nowhere"}) {
      CAPTURE(rendezvous);
      CAPTURE(interface);
      const test::Folder folder;
      FakePmi server(2);
      std::vector<Child> ranks;
      for (int rank = 0; rank < 2; ++rank) {
        ranks.emplace_back([&, rank](testing::Parent& test) {
          ::setenv("PMI_FD", std::to_string(server.fd(rank)).c_str(), 1);
          if (rendezvous == "pmix:") open_fake_pmix(folder.path());
          test.say(outcome_of_meeting(rank, rendezvous, rank == 0 ? interface : "lo"));
          test.await();
          return 0;
        });
      }
      server.serve();
      const std::string said[2] = {ranks[0].hear(5'000), ranks[1].hear(5'000)};
      if (interface == "lo") {
        CHECK(said[0] == "ok");
        CHECK(said[1] == "ok");
      } else {
        CHECK(said[0].find("RONDO_SOCKET_IFNAME=\"nowhere\"") != std::string::npos);
        CHECK(said[1].find("BOOTSTRAP [0] rank 0 cannot start: RONDO_SOCKET_IFNAME=\"nowhere\"") == 0);
      }
    }
  }
}

TEST_CASE("on one host a rank does not wait for a rank 0 that cannot serve in their folder either (needs root)") {
  FakePmi server(2);
  Child rank([&](testing::Parent& test) {
    ::setenv("PMI_FD", std::to_string(server.fd(1)).c_str(), 1);
    test.say(open_private_folder() ? outcome_of_meeting(test::launch(1, 2, "pmi:"), "") : "not root");
    return 0;
  });
  server.serve();
  const std::string said = rank.hear(5'000);
  if (said == "not root") return;
  CHECK(said.find("BOOTSTRAP [] " + private_directory() + " must be a directory of this user with mode 0700") == 0);
}

TEST_CASE("an interruption ends the wait for what rank 0 says through a PMIx server") {
  const test::Folder folder;
  Child rank([&](testing::Parent& test) {
    open_fake_pmix(folder.path());
    set_interrupt_function([](void*) { return 1; }, nullptr);
    test.say(outcome_of_meeting(1, "pmix:", "lo"));
    return 0;
  });
  CHECK(rank.hear(5'000).find("INTERRUPTED") == 0);
}

}  // namespace
}  // namespace rondo
