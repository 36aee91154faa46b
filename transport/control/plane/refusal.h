#pragma once

#include <optional>
#include <string>

#include "transport/control/plane/plane_settings.h"
#include "transport/hello/wire.h"

namespace rondo {

// What that rank says to one that dials it.
Answer answer_of(int rank, AnswerCode code = AnswerCode::kWelcome, std::string text = "");
// Why a process that knows the secret is no rank of this job with equal settings, or does not mean this rank; nullopt:
// it is, and does. The hello's rank is one of the world's then.
std::optional<Answer> refusal_of(const Hello& hello, const PlaneSettings& own);

}  // namespace rondo
