// Needs root (or CAP_SYS_ADMIN and CAP_NET_ADMIN) and iproute2: each case runs in a network namespace of its own, which
// ends with the process that made it. Fails, and says so, where it cannot.
#include <doctest/doctest.h>
#include <sched.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "rondo/communicator.h"
#include "rondo/error.h"
#include "rondo/unique_id.h"
#include "tests/rendezvous/test_jobs.h"
#include "tests/support/child.h"
#include "tests/support/namespaces.h"
#include "tests/support/rank_group.h"
#include "tests/support/temp_folder.h"
#include "transport/rendezvous/address.h"
#include "transport/rendezvous/launch.h"
#include "transport/rendezvous/meeting_file.h"

namespace rondo {
namespace {

constexpr int kNoNamespace = 77;

// Runs `body` in a fresh namespace, in which `setup` (shell) has been run; body returns "" or what is wrong.
void in_namespace(const std::string& setup, const std::function<std::string()>& body) {
  const int code = testing::in_child([&] {
    if (unshare(CLONE_NEWNET) != 0) return kNoNamespace;
    if (std::system(("set -e; PATH=$PATH:/usr/sbin:/sbin; ip link set lo up; " + setup).c_str()) != 0)
      return kNoNamespace;
    std::string wrong;
    try {
      wrong = body();
    } catch (const std::exception& e) {
      wrong = e.what();
    }
    if (!wrong.empty()) std::fprintf(stderr, "in the namespace: %s\n", wrong.c_str());
    return wrong.empty() ? 0 : 1;
  });
  REQUIRE_MESSAGE(code != kNoNamespace, "cannot make network namespaces: run as root, with iproute2 installed");
  CHECK(code == 0);
}

// An interface that is up; its other end is not.
std::string interface(const std::string& name, const std::string& addresses) {
  std::string setup = "ip link add " + name + " type veth peer name p" + name + "; ip link set " + name +
                      " up; ip link set p" + name + " up; ";
  for (size_t at = 0; at < addresses.size();) {
    size_t end = std::min(addresses.find(' ', at), addresses.size());
    std::string address = addresses.substr(at, end - at);
    bool v6 = address.find(':') != std::string::npos;
    setup += "ip addr add " + address + " dev " + name + (v6 ? " nodad; " : "; ");
    at = end + 1;
  }
  return setup;
}

std::string listen(const std::string& rendezvous, const std::string& names = "", bool insecure = true) {
  Launch launch = test::launch(1, 2, rendezvous);
  launch.one_host = false;
  Config config;
  config.insecure = insecure;
  config.socket_interface = names;
  try {
    std::string text;
    for (const std::string& host : listen_addresses(launch, config)) text += host + " ";
    return text;
  } catch (const Exception& e) {
    return std::string(error_code_name(e.code())) + ": " + e.what();
  }
}

std::string expect(const std::string& found, const std::string& expected) {
  return found == expected ? "" : "\"" + found + "\" instead of \"" + expected + "\"";
}

std::string expect_part(const std::string& found, const std::string& part) {
  return found.find(part) != std::string::npos ? "" : "\"" + found + "\" lacks \"" + part + "\"";
}

const std::string kTwo = interface("eth0", "10.1.2.3/24 fd00:1::3/64") + interface("ib0", "10.9.9.3/24") +
                         interface("docker0", "172.17.0.1/16");

TEST_CASE("fault 66: netns: the address that routes to the master, over IPv4 and IPv6") {
  in_namespace(kTwo, [] { return expect(listen("tcp://10.1.2.9:5"), "10.1.2.3 "); });
  in_namespace(kTwo, [] { return expect(listen("tcp://10.9.9.9:5"), "10.9.9.3 "); });
  in_namespace(kTwo, [] { return expect(listen("tcp://[fd00:1::9]:5"), "fd00:1::3 "); });
  in_namespace(kTwo, [] { return expect(listen("tcp://10.1.2.3:5"), "10.1.2.3 "); });  // the master's own host
  in_namespace(interface("eth0", "fd00:1::3/64"), [] { return expect(listen("tcp://[fd00:1::9]:5"), "fd00:1::3 "); });
}

TEST_CASE("fault 66: netns: docker0, loopback and link-local addresses are never chosen by themselves") {
  in_namespace(kTwo + "ip route add default dev docker0; ",
               [] { return expect(listen("file:///x"), "10.1.2.3 10.9.9.3 fd00:1::3 "); });
  in_namespace(kTwo + "ip route add default dev ib0; ", [] { return expect(listen("file:///x"), "10.9.9.3 "); });
  in_namespace(interface("docker0", "172.17.0.1/16") + interface("eth0", "169.254.7.7/16"), [] {
    std::string found = listen("file:///x");
    std::string wrong = expect_part(found, "BOOTSTRAP: this machine has no address that other machines could reach");
    return wrong + expect_part(found, "docker0 172.17.0.1") + expect_part(found, "eth0 169.254.7.7");
  });
}

TEST_CASE("netns: RONDO_SOCKET_IFNAME takes names and prefixes, or excludes them") {
  in_namespace(kTwo, [] { return expect(listen("tcp://10.1.2.9:5", "ib"), "10.9.9.3 "); });
  in_namespace(kTwo, [] { return expect(listen("tcp://10.1.2.9:5", "^ib"), "10.1.2.3 fd00:1::3 "); });
  in_namespace(kTwo, [] { return expect(listen("tcp://10.1.2.9:5", "docker0"), "172.17.0.1 "); });
  in_namespace(kTwo, [] { return expect(listen("tcp://10.1.2.9:5", "ib0,eth0"), "10.1.2.3 10.9.9.3 fd00:1::3 "); });
  in_namespace(kTwo, [] { return expect_part(listen("tcp://10.1.2.9:5", "wlan"), "eth0 10.1.2.3"); });
}

TEST_CASE("netns: beyond loopback a secret or insecure is needed") {
  in_namespace(kTwo, [] {
    std::string found = listen("tcp://10.1.2.9:5", "", false);
    return expect_part(found, "INVALID") + expect_part(found, "RONDO_SECRET_FILE") +
           expect_part(found, "RONDO_INSECURE");
  });
}

// The addresses (hexadecimal, as the kernel writes them) on which this namespace listens by TCP.
std::set<std::string> listeners() {
  std::set<std::string> found;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream table(path);
    std::string line, number, local, remote, state;
    std::getline(table, line);
    while (table >> number >> local >> remote >> state && std::getline(table, line)) {
      if (state == "0A") found.insert(local.substr(0, local.find(':')));
    }
  }
  return found;
}

// "" or what the ranks report, each of which joins without any permission, after prepare(rank).
std::string join_without_permission(const std::string& rendezvous, const std::function<void(int)>& prepare,
                                    const std::function<void(Communicator&)>& use) {
  return testing::run_bare_processes(2, std::chrono::seconds(60), [&](int rank) {
    prepare(rank);
    JoinOptions options;
    options.rank = rank;
    options.world = 2;
    options.rendezvous = rendezvous;
    options.config = Config{};
    options.config.start_timeout_ms = 10'000;  // a rank that is refused cannot tell rank 0 of the other host
    Communicator communicator = Communicator::join(options);
    use(communicator);
  });
}

TEST_CASE(
    "netns: ranks of one host need no permission, whatever address they were given, and listen on loopback only") {
  for (const char* host : {"10.1.2.3", "[fd00:1::3]", "10.9.9.3"}) {
    CAPTURE(host);
    in_namespace(kTwo, [host] {
      return join_without_permission(
          fmt::format("tcp://{}:21234", host), [](int) {},
          [](Communicator& communicator) {
            communicator.barrier();
            testing::expect(communicator.topology().one_island(), "no shared memory");
            testing::expect(listeners() == std::set<std::string>{"0100007F"},
                            fmt::format("{}", fmt::join(listeners(), " ")));
            communicator.barrier();
          });
    });
  }
}

TEST_CASE("netns: ranks of two hosts are refused without a permission, and told so") {
  const auto leave = [](int rank) {
    if (rank == 1 && unshare(CLONE_NEWNET) != 0) throw std::runtime_error("unshare");
    const std::string setup = "PATH=$PATH:/usr/sbin:/sbin; ip link set lo up; " + interface("eth1", "10.1.2.4/24");
    if (rank == 1 && std::system(setup.c_str()) != 0) throw std::runtime_error("ip");
  };
  const testing::TempFolder folder;
  in_namespace(kTwo, [&] {
    const std::string found = join_without_permission("file://" + folder.path("job"), leave, [](Communicator&) {});
    return expect_part(found,
                       fmt::format("rank 1: INVALID: rank 0 of file://{} is on another host", folder.path("job"))) +
           expect_part(found, "RONDO_INSECURE");
  });
  in_namespace(kTwo, [&] {
    const std::string found = join_without_permission(
        "tcp://10.1.2.3:21234",
        [&](int rank) {
          leave(rank);
          if (rank == 0) throw std::runtime_error("stays away");
        },
        [](Communicator&) {});
    return expect_part(found, "rank 1: INVALID: rank 1 is not on the host of tcp://10.1.2.3:21234");
  });
}

std::string unique_id_at(const std::string& host) {
  try {
    return UniqueIdServer(host).id();
  } catch (const Exception& e) {
    return std::string(error_code_name(e.code())) + ": " + e.what();
  }
}

TEST_CASE("netns: ranks of two hosts that have a secret meet by a shared file, at a port of the range") {
  const testing::Namespaces hosts;
  const testing::TempFolder folder;
  const std::string path = folder.path("meeting");
  for (const bool known : {false, true}) {
    CAPTURE(known);
    CHECK(testing::run_bare_processes(2, std::chrono::seconds(30), [&](int rank) {
            hosts.enter(rank);
            Launch launch = test::launch(rank, 2, "file://" + path);
            launch.one_host = false;
            launch.place = known ? Place{rank, 2, 0, 1, rank, 2} : Place{rank, 2, -1, -1, -1, -1};
            launch.secret = {Secret::Source::kFile, std::string(32, 'x'), "a file"};
            Config config;
            config.data_ports = "21300-21301";
            const auto store = open_store(launch, config, test::soon());
            if (rank == 0) {
              testing::expect(said_in_file(path).ends_with(" tcp://10.77.0.1:21300"), said_in_file(path));
              store->get("here", test::soon());
            } else {
              store->put("here", "1", test::soon());
            }
          }) == "");
  }
}

TEST_CASE("netns: a unique id on loopback has the address that is there, and none at once where loopback is down") {
  for (const char* host : {"127.0.0.1", "::1"}) {
    CAPTURE(host);
    in_namespace("", [host] { return expect_part(unique_id_at(host), "unique:127.0.0.1:"); });
    in_namespace("ip addr del 127.0.0.1/8 dev lo; ",
                 [host] { return expect_part(unique_id_at(host), "unique:[::1]:"); });
    in_namespace("ip link set lo down; ", [host] {
      return expect_part(unique_id_at(host), "BOOTSTRAP: the loopback interface is down or has no address");
    });
  }
}

TEST_CASE("netns: ranks of one host whose loopback has an IPv6 address only, with MASTER_ADDR of any kind") {
  const Environment plain({{"RANK", "1"},
                           {"WORLD_SIZE", "2"},
                           {"LOCAL_RANK", "1"},
                           {"LOCAL_WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "localhost"},
                           {"MASTER_PORT", "29500"}});
  in_namespace("ip addr del 127.0.0.1/8 dev lo; ",
               [&plain] { return expect(find_launch_in({}, plain).rendezvous, "tcp://[::1]:29500"); });
}

TEST_CASE("netns: two namespaces are two hosts") {
  std::string here = host_identity();
  in_namespace("", [here] { return host_identity() != here ? "" : "the same identity"; });
}

}  // namespace
}  // namespace rondo
