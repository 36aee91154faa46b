// What a rank does on a communicator, as JSON for those who watch: with NCCL's names, whatever is in the texts.
#include "ring/engine/communicator_status.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace rondo::testing {
namespace {

using Json = nlohmann::json;

}  // namespace

TEST_CASE("the object says what the communicator says") {
  CommunicatorStatus one;
  one.id = 0x10;
  one.epoch = 2;
  one.rank = 1;
  one.size = 3;
  one.in_shared_memory = 1;
  one.failure = Error{ErrorCode::kAborted, "why", {0}};
  one.made[static_cast<size_t>(Collective::kReduceScatter)] = {7, 700};
  one.sequence = kMeetingSequence + 8;
  one.collective = Collective::kAllToAll;
  one.bytes = 12;
  one.call.text = "all_to_all()";
  one.call.since_ms = 5;
  one.messages.in_p2p = true;
  one.messages.p2p_text = "recv()";
  one.messages.since_ms = 6;
  one.waits = {{0, 2}, "rank 0 \\ rank\n2"};
  const std::string text = status_json(one);
  CHECK(std::count(text.begin(), text.end(), '\n') == 0);
  const Json communicator = Json::parse(text);
  CHECK(communicator.at("hash") == "0x10");
  CHECK(communicator.at("size") == 3);
  const Json& member = communicator.at("ranks").at(0);
  CHECK(member.at("rank") == 1);
  CHECK(member.at("pid") == ::getpid());
  CHECK(member.at("status").at("async_error") == static_cast<int>(ErrorCode::kAborted));
  CHECK(member.at("status").at("abort_flag") == true);
  CHECK(member.at("status").at("finalize_called") == false);
  CHECK(member.at("collective_counts") == Json{{"ReduceScatter", 7}});
  CHECK(member.at("collective_bytes") == Json{{"ReduceScatter", 700}});
  CHECK(member.at("links") == Json{{"shared_memory", 1}, {"tcp", 1}});
  CHECK(member.at("call").at("number") == 8);
  CHECK(member.at("call").at("collective") == "AllToAll");
  CHECK(member.at("call").at("since_ms") == 5);
  CHECK(member.at("message") == Json{{"text", "recv()"}, {"since_ms", 6}});
  CHECK(member.at("waits_for") == Json{0, 2});
  CHECK(member.at("blame") == one.waits.sentence);
}

}  // namespace rondo::testing
