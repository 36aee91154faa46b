#include "transport/control/plane/data_links.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/control/plane/refusal.h"
#include "transport/tcp/socket_options.h"

namespace rondo {
namespace {

// The name under which this rank keeps the connection of a hello: the peer's stream to it is its stream from the peer.
LinkName link_of(const Hello& hello) {
  const LinkKind kind = hello.role == Role::kData ? LinkKind::kData : LinkKind::kStreamFrom;
  return {hello.communicator, kind, static_cast<int>(hello.rank)};
}

// What one peer may have waiting for communicators that are not open here: its part of all of it, but at least the
// links and streams of a few.
size_t early_share(const PlaneSettings& settings) {
  constexpr size_t kCommunicators = 4;
  const size_t least = kCommunicators * (size_t{settings.config.connections} + 1);
  return std::max(least, settings.max_early / static_cast<size_t>(std::max(1, settings.world - 1)));
}

}  // namespace

DataLinks::DataLinks(const PlaneSettings& settings, ControlDriver& driver, PeerDialer& dialer, ControlMesh& mesh,
                     OnComplete on_complete)
    : settings_(settings),
      driver_(driver),
      dialer_(dialer),
      mesh_(mesh),
      on_complete_(std::move(on_complete)),
      table_(settings.config.connections, settings.max_early, early_share(settings)),
      sockets_(silence_ms(settings.config)) {}

// Asked again and again by a flow that waits; only the first wish brings the link about. A communicator that has failed
// wishes for nothing.
std::vector<SecuredSocket> DataLinks::take(const LinkName& name) {
  {
    const auto state = driver_.hold();
    std::vector<SecuredSocket> sockets = table_.take(name);
    if (!sockets.empty()) return sockets;
    if (!state->logic->sound(name.communicator) || state->logic->departures().gone(name.peer)) return {};
    if (!table_.want(name)) return {};
  }
  driver_.post([this, name] { bring_about(name); });
  return {};
}

std::optional<std::pair<int, SecuredSocket>> DataLinks::take_stream_from(uint64_t communicator) {
  const auto state = driver_.hold();
  return table_.take_stream_from(communicator);
}

void DataLinks::forget(uint64_t communicator) {
  driver_.post([this, communicator] { dialer_.forget_communicator(communicator); });
}

// Connection and communicator of the hello are the peer's numbers, and are compared here.
Answer DataLinks::judge(const ControlLogic& logic, const Hello& hello) const {
  const int rank = settings_.rank;
  const int peer = static_cast<int>(hello.rank);
  if (logic.departures().gone(peer)) {
    return answer_of(rank, AnswerCode::kForbidden, fmt::format("rank {} has left", peer));
  }
  const Config& config = settings_.config;
  const bool data = hello.role == Role::kData;
  if (data ? peer < rank || hello.connections != config.connections : hello.connections != 1) {
    return answer_of(rank, AnswerCode::kForbidden, "this is not how a link is made");
  }
  if (!logic.may_join(hello.communicator, peer)) {
    return answer_of(rank, AnswerCode::kForbidden, "you are no member of this communicator");
  }
  switch (table_.fits(link_of(hello), hello.connection)) {
    case PendingLinks::Fit::kYes:
      return answer_of(rank);
    case PendingLinks::Fit::kLater:
      return answer_of(rank, AnswerCode::kBusy, "too many links wait to be opened");
    case PendingLinks::Fit::kNo:
      break;
  }
  return answer_of(rank, AnswerCode::kForbidden, "this link exists already, or its communicator is closed");
}

void DataLinks::welcome(const Hello& hello, SecuredSocket socket) {
  add(link_of(hello), hello.connection, std::move(socket));
}

// A socket that was dialed or accepted. Its communicator may not be open here yet: then the table keeps it.
void DataLinks::add(const LinkName& name, uint32_t index, SecuredSocket socket) {
  try {
    tune_data_socket(socket.socket.get(), tuning_of(settings_.config));
  } catch (const Exception& failure) {
    return failed(name, failure.error());
  }
  bool complete = false;
  {
    const auto state = driver_.hold();
    if (table_.fits(name, index) == PendingLinks::Fit::kNo) return;  // closed meanwhile
    complete = table_.add(name, index, std::move(socket));
  }
  if (complete) on_complete_(name);
  if (name.kind != LinkKind::kStreamFrom) return;
  driver_.tell([&](ControlLogic& logic) { logic.streamed(name.communicator, name.peer); });
}

void DataLinks::on_wish(int source, const ConnectMessage& wish) {
  const LinkName name{wish.communicator, LinkKind::kData, source};
  bool first = false;
  {
    const auto state = driver_.hold();
    const bool sound = source < settings_.rank && state->logic->may_join(name.communicator, source);
    first = sound && !state->logic->departures().gone(source) && table_.want(name);
  }
  if (first) dial(name);
}

void DataLinks::bring_about(const LinkName& name) {
  if (name.kind == LinkKind::kStreamTo || name.peer < settings_.rank) return dial(name);
  mesh_.send(name.peer, ConnectMessage{name.communicator});
}

// Each connection of the link is added as it comes; the first that fails ends the others.
void DataLinks::dial(const LinkName& name) {
  if (ended_) return;
  dialer_.dial_link(name, [this, name](uint32_t index, DialResult result) {
    if (!result.error.ok()) return failed(name, result.error);
    add(name, index, std::move(result.socket));
  });
}

void DataLinks::failed(const LinkName& name, const Error& error) {
  dialer_.forget_link(name);  // the rest of the link is of no use
  const ErrorCode code = error.code == ErrorCode::kSystem ? error.code : ErrorCode::kNetwork;
  const int culprit = code == ErrorCode::kSystem ? settings_.rank : name.peer;
  if (driver_.hold()->logic->find(name.communicator) != nullptr) {
    const Error network{code, error.message, {culprit}};
    return driver_.tell(
        [&](ControlLogic& logic) { logic.link_failed(ControlDriver::now(), name.communicator, name.peer, network); });
  }
  // Only the other side has opened the communicator yet: it asked for the link, so it is told; and here it fails when
  // it is opened.
  const AbortMessage message{
      name.communicator,
      Stage::kMaking,
      {code,
       fmt::format("the data connection between {} and {} failed: {}", driver_.peer_name(settings_.rank),
                   driver_.peer_name(name.peer), error.message),
       {culprit}}};
  mesh_.send(name.peer, message);
  driver_.tell([&](ControlLogic& logic) { logic.receive(ControlDriver::now(), name.peer, message); });
}

void DataLinks::look() {
  for (const DataSockets::Failure& failed : sockets_.look(ControlDriver::now())) {
    driver_.tell([&](ControlLogic& logic) {
      logic.way_failed(ControlDriver::now(), failed.key.communicator, failed.key.peer,
                       {ErrorCode::kNetwork, failed.what, {failed.key.peer}});
    });
  }
}

void DataLinks::end() {
  ended_ = true;
  dialer_.forget_links();
}

}  // namespace rondo
