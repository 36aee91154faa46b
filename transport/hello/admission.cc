#include "transport/hello/admission.h"
#include "ring/base/json_text.h"

#include <fmt/format.h>

#include <utility>

namespace rondo {

Answer Admission::refuse(AnswerCode code, std::string text) const {
  Answer answer = welcome();
  answer.code = code;
  answer.text = std::move(text);
  return answer;
}

Answer Admission::welcome() const {
  Answer answer;
  answer.rank = static_cast<uint32_t>(rank);
  return answer;
}

std::optional<Answer> Admission::judge(const Hello& hello) const {
  if (hello.job_id != job_id) {
    return refuse(AnswerCode::kJob, fmt::format("this is job {}, not {}", json_text(job_id), json_text(hello.job_id)));
  }
  if (hello.world != static_cast<uint32_t>(world)) {
    return refuse(AnswerCode::kWorld,
                  fmt::format("rank {} was started in a world of {}, you in a world of {}", rank, world, hello.world));
  }
  if (hello.rank >= hello.world || hello.rank == static_cast<uint32_t>(rank)) {
    return refuse(AnswerCode::kRank, fmt::format("you say that you are rank {}, and this is rank {} in a world of {}",
                                                 hello.rank, rank, world));
  }
  if (hello.destination != static_cast<uint32_t>(rank)) {
    return refuse(AnswerCode::kRank, fmt::format("this is rank {}, not rank {}", rank, hello.destination));
  }
  if (hello.shared_hash != shared_hash) {
    return refuse(AnswerCode::kShared, "settings that must be equal on all ranks differ");
  }
  return std::nullopt;
}

}  // namespace rondo
