#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <string>

#include "ring/base/descriptor.h"

namespace rondo {

// Answers GET /metrics on a port of loopback. Clients are heard at the same time, and each has a second for request and
// answer together, so that a slow one holds up nobody.
class MetricsServer {
 public:
  // Throws Exception(kSystem) that names the port.
  MetricsServer(int port, std::function<std::string()> text);
  // Returns when `stop` is readable. What text() throws is thrown.
  void run(int stop);

 private:
  using Clock = std::chrono::steady_clock;
  struct Client {
    Descriptor socket;
    Clock::time_point until;
    std::string request, answer;  // the answer is empty until the request is whole
    size_t sent = 0;
  };

  void accept();
  bool go_on(Client& client) const;
  bool hear(Client& client) const;
  std::string answer_to(const std::string& request) const;
  int wait_ms(Clock::time_point now) const;

  const std::function<std::string()> text_;
  Descriptor listener_;
  Clock::time_point rest_until_{};  // no descriptor was left for a client
  std::list<Client> clients_;       // oldest first
};

}  // namespace rondo
