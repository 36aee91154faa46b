#pragma once

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/rendezvous/test_jobs.h"

namespace rondo {

// A PMI-1 server for `size` clients, as a launcher runs it: one thread a client, from serve() on.
class FakePmi {
 public:
  explicit FakePmi(int size, size_t value_limit = 1024) : size_(size), value_limit_(value_limit) {
    for (int i = 0; i < size; ++i) {
      int ends[2];
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
      servers_.push_back(ends[0]);
      clients_.push_back(ends[1]);
    }
  }
  ~FakePmi() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      all_.notify_all();
    }
    for (int fd : clients_) ::shutdown(fd, SHUT_RDWR);
    for (std::thread& thread : threads_) thread.join();
    for (int fd : clients_) ::close(fd);
    for (int fd : servers_) ::close(fd);
  }
  void serve() {
    for (int i = 0; i < size_; ++i) threads_.emplace_back([this, i] { serve(servers_[i]); });
  }
  int fd(int i) const { return clients_[i]; }
  int finalized() const { return finalized_; }

 private:
  void serve(int fd) {
    std::string input;
    char buffer[512];
    while (true) {
      ssize_t n = ::read(fd, buffer, sizeof buffer);
      if (n <= 0) return;
      input.append(buffer, n);
      for (size_t end; (end = input.find('\n')) != std::string::npos; input.erase(0, end + 1)) {
        std::string reply = answer(input.substr(0, end)) + "\n";
        // In two pieces, since nothing promises that a line comes in one.
        (void)!::send(fd, reply.data(), 3, MSG_NOSIGNAL);
        (void)!::send(fd, reply.data() + 3, reply.size() - 3, MSG_NOSIGNAL);
      }
    }
  }

  std::string answer(const std::string& line) {
    std::map<std::string, std::string> fields;
    std::istringstream words(line);
    for (std::string word; words >> word;) fields[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    std::unique_lock lock(mutex_);
    const std::string& cmd = fields["cmd"];
    if (cmd == "init") return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
    if (cmd == "get_maxes") {
      return "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=" + std::to_string(value_limit_);
    }
    if (cmd == "get_my_kvsname") return "cmd=my_kvsname kvsname=kvs_1_2_host";
    if (cmd == "put") {
      if (fields["value"].size() >= value_limit_ || fields["key"].size() >= 64)
        return "cmd=put_result rc=-1 msg=too_long";
      if (!values_.emplace(fields["key"], fields["value"]).second) {
        return "cmd=put_result rc=-1 msg=duplicate_key " + fields["key"];
      }
      return "cmd=put_result rc=0 msg=success";
    }
    if (cmd == "get") {
      auto value = values_.find(fields["key"]);
      if (value == values_.end()) return "cmd=get_result rc=-1 msg=key_not_found value=unknown";
      return "cmd=get_result rc=0 msg=success value=" + value->second;
    }
    if (cmd == "barrier_in") {
      int turn = arrived_++ / size_;
      all_.notify_all();
      all_.wait_until(lock, test::soon(), [&] { return stopping_ || arrived_ >= (turn + 1) * size_; });
      return "cmd=barrier_out";
    }
    if (cmd == "finalize") ++finalized_;
    return cmd == "finalize" ? "cmd=finalize_ack" : "cmd=unknown";
  }

  const int size_;
  const size_t value_limit_;
  std::vector<int> servers_, clients_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable all_;
  std::map<std::string, std::string> values_;
  int arrived_ = 0;
  bool stopping_ = false;
  int finalized_ = 0;
};

}  // namespace rondo
