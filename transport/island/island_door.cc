#include "transport/island/island_door.h"

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/island/island_frame.h"
#include "transport/island/island_socket.h"
#include "transport/tcp/acceptor.h"
#include "transport/tcp/asio_socket.h"
#include "transport/tcp/socket.h"

namespace rondo {
namespace {

// Connections of the members' processes that have not greeted: one each, and these. More push out the oldest.
constexpr size_t kSpareStrangers = 16;

}  // namespace

// All on the I/O thread. A connection is a stranger until its greeting has come, and the kernel's account of its
// process agrees with it.
class IslandDoor::State {
 public:
  State(asio::io_context& io, Descriptor listener, Settings settings, OnMember on_member)
      : io_(io),
        acceptor_(io, std::move(listener), [this](Descriptor stranger) { take(std::move(stranger)); }),
        settings_(std::move(settings)),
        on_member_(std::move(on_member)) {
    for (const auto& [rank, pid] : settings_.members) pids_.insert(pid);
    asio::post(io_, [this] { acceptor_.start(); });
  }

 private:
  // Strangers of other processes are closed before they have said a word.
  void take(Descriptor stranger) {
    if (!check_peer(stranger.get(), 0).empty() || pids_.count(peer_pid(stranger.get())) == 0) return;
    if (!admit(stranger)) await_greeting(std::move(stranger));
  }

  // A process of the island could open connections for ever: the number of strangers is bounded, and the oldest go.
  void await_greeting(Descriptor stranger) {
    if (strangers_.size() == settings_.members.size() + kSpareStrangers) strangers_.pop_front();
    const auto place = strangers_.emplace(strangers_.end(), io_, std::move(stranger));
    place->when_readable([this, place] {
      Descriptor socket = place->detach();
      strangers_.erase(place);
      admit(socket);
    });
  }

  // False: it has said nothing yet. Takes a member's socket; any other that has spoken is to be closed.
  bool admit(Descriptor& socket) {
    IslandGreeting first;
    std::vector<Descriptor> files;
    std::string why;
    const Received received = receive_message(socket.get(), &first, sizeof first, files, why);
    if (received != Received::kYes) return received != Received::kNothing;
    const auto member = settings_.members.find(first.from);
    if (member == settings_.members.end() || !files.empty()) return true;
    if (first != IslandGreeting{settings_.session, member->first, settings_.rank}) return true;
    if (check_peer(socket.get(), member->second).empty()) on_member_(member->first, std::move(socket));
    return true;
  }

  asio::io_context& io_;
  Acceptor acceptor_;
  const Settings settings_;
  const OnMember on_member_;
  std::set<pid_t> pids_;             // of the members
  std::list<AsioSocket> strangers_;  // accepted, and have not said who they are; oldest first
};

IslandDoor::IslandDoor(asio::io_context& io, Descriptor listener, Settings settings, OnMember on_member)
    : state_(std::make_unique<State>(io, std::move(listener), std::move(settings), std::move(on_member))) {}
IslandDoor::~IslandDoor() = default;

}  // namespace rondo
