#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace rondo::life {

// What a rank found, and where it is: two files of the player's folder (README.md, "A rank"). Any thread.
class Report {
 public:
  Report(const std::string& folder, int rank);
  ~Report();  // writes the report
  Report(const Report&) = delete;

  void at(int thread, int line);
  void fault(const std::string& text);
  // Another rank has reported one, and begins no further round.
  void fault_of_another();
  // The hash of a line whose result all members of the group led by rank `leader` of the job have: the player compares
  // the first.
  void bits(int line, int leader, uint64_t hash);
  // What is equal from here on need not have the bits of before.
  void begin_again();
  // False: calls of this description had other bits before.
  bool same_again(const std::string& calls, uint64_t hash);
  bool clean();
  bool goes_on();

 private:
  std::string folder_;
  int rank_;
  std::atomic<uint64_t>* at_ = nullptr;
  std::mutex mutex_;
  std::vector<std::string> faults_;
  bool fault_of_another_ = false;
  std::map<std::pair<int, int>, uint64_t> bits_;
  std::map<std::string, uint64_t> bits_by_call_;
};

}  // namespace rondo::life
