#include "tools/doctor/pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "rondo/communicator.h"
#include "rondo/error.h"
#include "transport/rendezvous/address.h"
#include "transport/rendezvous/rendezvous_url.h"
#include "transport/rendezvous/secret.h"
#include "transport/tcp/listener.h"

namespace rondo::doctor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kTopic = "pair";
// The first trips find sockets and caches cold, and do not count.
constexpr int kRoundTrips = 2000, kWarmUp = 200;
constexpr uint64_t kMessageBytes = 64 << 20;
constexpr int kMessages = 5;  // of which the first is not counted

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Half a round trip, in microseconds.
double latency_us(Communicator& pair) {
  const int peer = 1 - pair.rank();
  uint64_t word = 0;
  std::vector<double> trips;
  for (int i = 0; i < kWarmUp + kRoundTrips; ++i) {
    const auto begin = Clock::now();
    if (pair.rank() == 0) pair.send(&word, 1, DType::kUint64, peer);
    pair.recv(&word, 1, DType::kUint64, peer);
    if (pair.rank() == 1) pair.send(&word, 1, DType::kUint64, peer);
    if (i >= kWarmUp) trips.push_back(seconds_since(begin) * 1e6 / 2);
  }
  return median(std::move(trips));
}

// GB/s of messages from that rank to the other, timed by the one that gets them: from its ready to the last byte. Both
// ends return the rate, which the receiver broadcasts.
double gigabytes_per_s(Communicator& pair, int from, std::vector<char>& memory) {
  const int peer = 1 - pair.rank();
  std::vector<double> rates;
  char ready = 0;
  for (int i = 0; i < kMessages; ++i) {
    if (pair.rank() == from) {
      pair.recv(&ready, 1, DType::kInt8, peer);
      pair.send(memory.data(), kMessageBytes, DType::kInt8, peer);
      continue;
    }
    const auto begin = Clock::now();
    pair.send(&ready, 1, DType::kInt8, peer);
    pair.recv(memory.data(), kMessageBytes, DType::kInt8, peer);
    if (i > 0) rates.push_back(static_cast<double>(kMessageBytes) / seconds_since(begin) / 1e9);
  }
  double rate = rates.empty() ? 0 : median(std::move(rates));
  pair.broadcast(&rate, 1, DType::kFloat64, 1 - from);
  return rate;
}

// Both at once: GB/s of each direction. Rank 0's median, broadcast.
double both_ways(Communicator& pair, std::vector<char>& out, std::vector<char>& in) {
  const int peer = 1 - pair.rank();
  std::vector<double> rates;
  for (int i = 0; i < kMessages; ++i) {
    pair.barrier();
    const auto begin = Clock::now();
    pair.sendrecv(out.data(), kMessageBytes, peer, in.data(), kMessageBytes, peer, DType::kInt8);
    if (i > 0) rates.push_back(static_cast<double>(kMessageBytes) / seconds_since(begin) / 1e9);
  }
  double rate = median(std::move(rates));
  pair.broadcast(&rate, 1, DType::kFloat64, 0);
  return rate;
}

// A pattern that no byte of the other end's has by chance; false: what came is not what was sent.
bool intact(Communicator& pair, std::vector<char>& out, std::vector<char>& in) {
  const int peer = 1 - pair.rank();
  const auto pattern = [](size_t i, int rank) {
    return static_cast<char>(i * 31 + i / 4096 + static_cast<size_t>(rank));
  };
  for (size_t i = 0; i < out.size(); ++i) out[i] = pattern(i, pair.rank());
  pair.sendrecv(out.data(), out.size(), peer, in.data(), in.size(), peer, DType::kInt8);
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] != pattern(i, peer)) return false;
  }
  return true;
}

std::string route_of(const Communicator& pair) {
  if (pair.topology().one_island()) return "shared memory: both ends are on this host";
  return pair.topology().one_host() ? "TCP inside this host" : "TCP between two hosts";
}

// Both ends run the same calls in the same order, and both report.
Findings measure(Communicator& pair) {
  std::vector<char> out(kMessageBytes, 1), in(kMessageBytes, 2);
  const double us = latency_us(pair);
  const double forth = gigabytes_per_s(pair, 0, out), back = gigabytes_per_s(pair, 1, out);
  const double both = both_ways(pair, out, in);
  Findings findings;
  findings.push_back({Level::kFine, kTopic, fmt::format("the two ends use {}", route_of(pair)), ""});
  findings.push_back({Level::kFine, kTopic, fmt::format("latency of 8 bytes: {:.2f} us", us), ""});
  findings.push_back(
      {Level::kFine, kTopic,
       fmt::format("64 MiB: {:.2f} GB/s from the listening end, {:.2f} GB/s to it, {:.2f} GB/s each way at "
                   "once",
                   forth, back, both),
       ""});
  const bool good = intact(pair, out, in);
  findings.push_back({good ? Level::kFine : Level::kWrong, kTopic,
                      good ? "every byte of 64 MiB arrived as it was sent" : "bytes of 64 MiB arrived changed",
                      good ? "" : "the network or its card damages data"});
  return findings;
}

}  // namespace

namespace {

// Asks for the permission that join() asks for: else the other end would be given an address where this one does not
// listen.
std::string listening_host(const std::string& given) {
  const Config config = Config::from_environment();
  Launch launch;
  launch.place.world = 2;
  launch.secret = find_secret(config, RendezvousUrl{}, Environment::current());
  if (given.empty()) return listen_addresses(launch, config).front();
  if (!is_loopback_host(given)) check_may_listen_beyond_loopback(given, exposure_of(config, launch.secret));
  return given;
}

}  // namespace

// More than one colon without brackets is an IPv6 address without a port.
PairEnd parse_pair_end(const std::string& text, bool listens) {
  PairEnd end{listens, "", kPairPort};
  const bool bare_v6 = std::count(text.begin(), text.end(), ':') > 1 && text.front() != '[';
  const size_t colon = bare_v6 || text.ends_with(']') ? std::string::npos : text.rfind(':');
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  if (colon != std::string::npos) {
    // The parser of every address, so the error is the same.
    end.port = parse_rendezvous("tcp://host:" + text.substr(colon + 1)).port;
  }
  if (listens) host = listening_host(host);
  if (host.empty()) throw Exception(ErrorCode::kInvalid, "--pair wants the address that the other end has printed");
  end.host = host;
  return end;
}

// A failure of the job is a finding, since it is what the user wants to know.
Findings check_pair(const PairEnd& end) {
  try {
    JoinOptions options;
    options.rank = end.listens ? 0 : 1;
    options.world = 2;
    options.rendezvous = tcp_url(end.host, end.port);
    options.job_id = "rondo-doctor";
    Communicator pair = Communicator::join(options);
    Findings findings = measure(pair);
    pair.destroy();
    return findings;
  } catch (const Exception& failure) {
    return {{Level::kWrong, kTopic, failure.what(), ""}};
  }
}

}  // namespace rondo::doctor
