#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "transport/hello/wire.h"

namespace rondo {

// What a process that knows the secret must say of itself to be a rank of this job.
struct Admission {
  int rank = 0;  // this one
  int world = 1;
  std::string job_id;  // bounded
  uint64_t shared_hash = 0;

  Answer refuse(AnswerCode code, std::string text) const;
  Answer welcome() const;
  // nullopt: it is a rank of this job, with equal settings, and means this one.
  std::optional<Answer> judge(const Hello& hello) const;
};

}  // namespace rondo
