#include "tests/life/report.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

namespace rondo::life {

Report::Report(const std::string& folder, int rank) : folder_(folder), rank_(rank) {
  const std::string path = folder + "/at-" + std::to_string(rank);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, 4096) != 0) throw std::runtime_error("life: cannot open " + path);
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (page == MAP_FAILED) throw std::runtime_error("life: cannot map " + path);
  at_ = static_cast<std::atomic<uint64_t>*>(page);
}

Report::~Report() {
  std::ofstream file(folder_ + "/report-" + std::to_string(rank_));
  for (const std::string& fault : faults_) file << "fault " << fault << "\n";
  for (const auto& [where, hash] : bits_) {
    file << "bits " << where.first << "/" << where.second << " " << std::hex << hash << std::dec << "\n";
  }
  ::munmap(at_, 4096);
}

void Report::at(int thread, int line) {
  at_[2 * thread].store(static_cast<uint64_t>(line), std::memory_order_relaxed);
  at_[2 * thread + 1].fetch_add(1, std::memory_order_relaxed);
}

void Report::fault(const std::string& text) {
  const std::lock_guard lock(mutex_);
  std::string line = "rank " + std::to_string(rank_) + ": " + text;
  std::replace(line.begin(), line.end(), '\n', ' ');
  faults_.push_back(line);
}

void Report::fault_of_another() {
  const std::lock_guard lock(mutex_);
  fault_of_another_ = true;
}

void Report::bits(int line, int leader, uint64_t hash) {
  const std::lock_guard lock(mutex_);
  bits_.emplace(std::pair(line, leader), hash);
}

void Report::begin_again() {
  const std::lock_guard lock(mutex_);
  bits_by_call_.clear();
}

bool Report::same_again(const std::string& calls, uint64_t hash) {
  const std::lock_guard lock(mutex_);
  return bits_by_call_.emplace(calls, hash).first->second == hash;
}

bool Report::clean() {
  const std::lock_guard lock(mutex_);
  return faults_.empty();
}

bool Report::goes_on() {
  const std::lock_guard lock(mutex_);
  return faults_.empty() && !fault_of_another_;
}

}  // namespace rondo::life
