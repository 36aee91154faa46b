#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/fabric.h"
#include "transport/tcp/listener.h"

namespace asio {
class io_context;
}

namespace rondo {

// What a rank is doing, for those who watch.
struct RankStatus {
  std::string job;
  uint32_t session = 0;  // of this start, the same on all ranks
  int rank = 0;
  int world = 1;
  std::string host;
  LinkRate slowest;
  std::vector<std::string> communicators;  // CommunicatorEvents::status_json() of each
};

// One line of JSON. docs/traces.md has the fields. Those that mean what NCCL's RAS subsystem says in its JSON (NCCL
// 2.28, ncclras -f json) have its names.
std::string status_json(const RankStatus& status);

// The type of Prometheus' text.
inline constexpr const char* kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";
// The answer to a request of HTTP.
std::string http_answer(const std::string& type, const std::string& body);

// Serves texts at a unix socket, on the I/O thread. A client that connects gets one, and then the end of the stream:
// the answer to its request of HTTP, or, where it ends its side or asks for nothing for kAskPatience, to an empty one.
// Processes of other users are refused, but for root's.
class StatusServer {
 public:
  static constexpr size_t kMostClients = 16;  // more push out the oldest
  // Longer than a client on this host takes from its connection to its request, and not long for one that has none.
  static constexpr std::chrono::milliseconds kAskPatience{50};
  using Answer = std::function<std::string(std::string_view request)>;

  // answer: called on the I/O thread. Where it throws, the client gets nothing. patience_ms: for a client to read it.
  StatusServer(asio::io_context& io, Listener listener, Answer answer, int64_t patience_ms = 5'000);
  // Removes the socket. The I/O thread must have been stopped.
  ~StatusServer();

 private:
  class State;
  const std::string path_;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
