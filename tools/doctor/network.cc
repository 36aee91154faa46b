#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>

#include "rondo/error.h"
#include "tools/doctor/checks.h"
#include "transport/rendezvous/address.h"
#include "transport/rendezvous/secret.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/socket_options.h"

namespace rondo::doctor {
namespace {

constexpr const char* kTopic = "network";
// So many of a range of ports are tried, and one for each rank.
constexpr int kMostPorts = 256;

std::string first_line(const char* path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

// Where ranks of one host listen, or of several.
// The same function as in join(): the doctor must not say otherwise than a job.
std::vector<std::string> addresses(const Job& job, bool one_host) {
  Launch launch;
  launch.one_host = one_host;
  launch.place.world = 2;
  Config config = job.config;
  config.insecure = true;  // permission is a question of its own
  return listen_addresses(launch, config);
}

Finding loopback(const Job& job) {
  try {
    return {Level::kFine, kTopic, fmt::format("inside this host: {}", fmt::join(addresses(job, true), ", ")), ""};
  } catch (const Exception& failure) {
    return {Level::kWrong, kTopic, failure.what(), "ip link set lo up"};
  }
}

// Sets `address` to the first. A job on one host runs without such an address.
Finding between_hosts(const Job& job, std::string& address) {
  const Level level = job.hosts > 1 ? Level::kWrong : Level::kNote;
  try {
    const std::vector<std::string> found = addresses(job, false);
    address = found.front();
    return {Level::kFine, kTopic,
            fmt::format("between hosts: {} (interfaces: {})", fmt::join(found, ", "), describe_interfaces()), ""};
  } catch (const Exception& failure) {
    return {level, kTopic, fmt::format("between hosts: {}", failure.what()), ""};
  }
}

// What join() looks at first where the user has said how ranks know one another.
Finding secret(const Job& job) {
  const Config& config = job.config;
  const bool given = config.insecure || !config.secret_file.empty() || config.secret_fd >= 0;
  try {
    const Secret found = given ? find_secret(config, RendezvousUrl{}, Environment::current()) : Secret{};
    if (found.exists()) return {Level::kFine, kTopic, "the secret of the job: " + found.name, ""};
    if (given) return {Level::kNote, kTopic, "every process that can connect is believed (RONDO_INSECURE=1)", ""};
  } catch (const Exception& failure) {
    return {Level::kWrong, kTopic, failure.what(), ""};
  }
  if (job.hosts < 2) return {Level::kFine, kTopic, "a job on one host needs no permission to listen", ""};
  return {Level::kWrong, kTopic, "a job on several hosts listens on the network, and may not",
          "set RONDO_SECRET_FILE, or RONDO_INSECURE=1 where the network is trusted"};
}

// Listens there to find out, for a moment. Throws what resolve() throws.
bool is_free(const std::string& host, int port) {
  SocketAddress bound;
  return listen_socket(resolve(host, static_cast<uint16_t>(port)).front(), &bound).valid();
}

Finding ports(const Job& job, const std::string& host) {
  try {
    const PortRange range = data_port_range(job.config);
    if (range.first == 0) {
      return {Level::kFine, "ports",
              fmt::format("any free one of {}", first_line("/proc/sys/net/ipv4/ip_local_port_range")), ""};
    }
    int free = 0, tried = 0;
    const int most = std::max(kMostPorts, job.local_ranks);
    for (int port = range.first; port <= range.last && tried < most; ++port, ++tried) free += is_free(host, port);
    const std::string text =
        fmt::format("{} of ports {}-{} are free on {}", free, range.first, range.first + tried - 1, host);
    if (free >= job.local_ranks) return {Level::kFine, "ports", text, ""};
    return {Level::kWrong, "ports", fmt::format("{}, and {} ranks need one each", text, job.local_ranks),
            "make RONDO_PORT_RANGE larger, or end what holds them (ss -ltnp)"};
  } catch (const Exception& failure) {
    return {Level::kWrong, "ports", failure.what(), ""};
  }
}

// "": the system does not say.
std::string default_congestion() {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::array<char, 16> name{};  // TCP_CA_NAME_MAX
  socklen_t size = name.size();
  if (!socket.valid() || ::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0) return "";
  return {name.data(), strnlen(name.data(), size)};
}

// Rondo's own choice for loopback is named: it differs from what the system says.
Finding congestion(const Job& job) {
  try {
    check_tuning(tuning_of(job.config));
  } catch (const Exception& failure) {
    return {Level::kWrong, "congestion", failure.what(), "set RONDO_TCP_CONGESTION to one that is there"};
  }
  const std::string own = default_congestion();
  const std::string there = first_line("/proc/sys/net/ipv4/tcp_available_congestion_control");
  const bool replaced = job.config.congestion_control == "auto" && own.starts_with("bbr");
  return {Level::kFine, "congestion",
          fmt::format("{} (there are: {}){}", own, there, replaced ? "; on loopback reno or cubic replaces it" : ""),
          ""};
}

}  // namespace

Findings check_network(const Job& job) {
  std::string address = "127.0.0.1";
  Findings findings{loopback(job), between_hosts(job, address), secret(job)};
  findings.push_back(ports(job, address));
  findings.push_back(congestion(job));
  return findings;
}

}  // namespace rondo::doctor
