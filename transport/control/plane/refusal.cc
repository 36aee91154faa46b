#include "transport/control/plane/refusal.h"

#include <fmt/format.h>

#include <utility>

#include "ring/base/json_text.h"

namespace rondo {

Answer answer_of(int rank, AnswerCode code, std::string text) {
  Answer answer;
  answer.code = code;
  answer.rank = static_cast<uint32_t>(rank);
  answer.text = std::move(text);
  return answer;
}

std::optional<Answer> refusal_of(const Hello& hello, const PlaneSettings& own) {
  const int rank = own.rank;
  if (hello.role == Role::kStore) return answer_of(rank, AnswerCode::kForbidden, "no store is served here");
  if (hello.job_id != own.job_id) {
    return answer_of(rank, AnswerCode::kJob,
                     fmt::format("this is job {}, not {}", json_text(own.job_id), json_text(hello.job_id)));
  }
  if (hello.world != static_cast<uint32_t>(own.world)) {
    return answer_of(
        rank, AnswerCode::kWorld,
        fmt::format("rank {} was started in a world of {}, you in a world of {}", rank, own.world, hello.world));
  }
  if (hello.rank >= hello.world || hello.rank == static_cast<uint32_t>(rank)) {
    return answer_of(
        rank, AnswerCode::kRank,
        fmt::format("you say that you are rank {}, and this is rank {} in a world of {}", hello.rank, rank, own.world));
  }
  if (hello.destination != static_cast<uint32_t>(rank)) {
    return answer_of(rank, AnswerCode::kRank, fmt::format("this is rank {}, not rank {}", rank, hello.destination));
  }
  if (hello.shared_hash != own.config.shared_hash()) {
    return answer_of(rank, AnswerCode::kShared, "settings that must be equal on all ranks differ");
  }
  return std::nullopt;
}

}  // namespace rondo
