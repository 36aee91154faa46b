#include "bench/bar_questions.h"

#include <algorithm>

#include "bench/limit.h"

namespace rondo::bench {
namespace {

const std::vector<std::string> kMpis{"openmpi", "mpich", "intelmpi"};
const std::vector<std::string> kGloos{"gloo", "gloo-sync", "gloo-busy"};

// Of the machine.
size_t settings_of(Against against) {
  return against == Against::kRawTcp || against == Against::kRawWalk ? kLimitSettings : 1;
}

}  // namespace

Question question_of(const Bar& bar, double seconds) {
  Question question;
  question.world = bar.world;
  question.transport = bar.transport;
  question.congestion = bar.congestion;
  question.buffers = bar.buffers;
  question.seconds = seconds;
  return question;
}

std::vector<std::string> peers_of(const Bar& bar) {
  if (against_the_machine(bar.against)) return {};
  if (bar.against == Against::kGloo) return kGloos;
  std::vector<std::string> peers = kMpis;
  if (bar.against != Against::kBestMpi && bar.transport == "tcp") {
    peers.insert(peers.end(), kGloos.begin(), kGloos.end());
  }
  return peers;
}

std::vector<std::string> needed_peers_of(const Bar& bar) {
  if (against_the_machine(bar.against)) return {};
  return bar.against == Against::kGloo ? std::vector<std::string>{"gloo"} : kMpis;
}

std::vector<BarQuestion> questions_of(const std::vector<Bar>& bars, double seconds) {
  std::vector<BarQuestion> questions;
  for (const Bar& bar : bars) {
    const Question question = question_of(bar, seconds);
    auto found =
        std::find_if(questions.begin(), questions.end(), [&](const auto& q) { return q.question == question; });
    if (found == questions.end()) found = questions.insert(found, {question, {"rondo"}, 1});
    found->settings = std::max(found->settings, settings_of(bar.against));
    if (bar.buffers != "plain") continue;
    for (const std::string& peer : peers_of(bar)) {
      auto& libraries = found->libraries;
      if (std::find(libraries.begin(), libraries.end(), peer) == libraries.end()) libraries.push_back(peer);
    }
  }
  return questions;
}

}  // namespace rondo::bench
