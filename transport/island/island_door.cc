#include "transport/island/island_door.h"

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/island/island_frame.h"
#include "transport/island/island_socket.h"
#include "transport/tcp/asio_socket.h"
#include "transport/tcp/socket.h"

namespace rondo {
namespace {

// Connections of the members' processes that have not greeted: one each, and these. More push out the oldest.
constexpr size_t kSpareStrangers = 16;
// Before the next try where this process has no descriptor left.
constexpr std::chrono::milliseconds kPause{10};

}  // namespace

// All on the I/O thread. A connection is a stranger until its greeting has come, and the kernel's account of its
// process agrees with it.
class IslandDoor::State : public std::enable_shared_from_this<IslandDoor::State> {
 public:
  State(asio::io_context& io, Descriptor listener, Settings settings, OnMember on_member)
      : io_(io),
        listener_(io, std::move(listener)),
        pause_(io),
        settings_(std::move(settings)),
        on_member_(std::move(on_member)) {
    for (const auto& [rank, pid] : settings_.members) pids_.insert(pid);
  }

  void start_soon() {
    asio::post(io_, [self = shared_from_this()] { self->wait(); });
  }
  // An empty on_member_ says that the door has gone: handlers that Asio still holds then do nothing.
  void cancel() {
    on_member_ = nullptr;
    pause_.cancel();
    listener_.detach();
    strangers_.clear();
  }

 private:
  void wait() {
    if (!on_member_) return;
    listener_.when_readable([self = shared_from_this()](asio::error_code failure) {
      if (!failure && self->on_member_) self->accept();
    });
  }

  // Accepts all that wait. Strangers of other processes are closed before they have said a word.
  void accept() {
    while (true) {
      Descriptor stranger = accept_abstract(listener_.get());
      if (!stranger.valid()) break;
      if (!check_peer(stranger.get(), 0).empty() || pids_.count(peer_pid(stranger.get())) == 0) continue;
      if (!admit(stranger)) await_greeting(std::move(stranger));
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ECONNABORTED || errno == EINTR) return wait();
    pause_.expires_after(kPause);
    pause_.async_wait([self = shared_from_this()](asio::error_code failure) {
      if (!failure) self->wait();
    });
  }

  // A process of the island could open connections for ever: the number of strangers is bounded, and the oldest go.
  void await_greeting(Descriptor stranger) {
    if (strangers_.size() == settings_.members.size() + kSpareStrangers) strangers_.erase(strangers_.begin());
    const uint64_t number = ++last_stranger_;
    const auto place = strangers_.try_emplace(number, io_, std::move(stranger)).first;
    place->second.when_readable([self = shared_from_this(), number](asio::error_code) {
      const auto found = self->strangers_.find(number);
      if (found == self->strangers_.end()) return;  // pushed out
      Descriptor socket = found->second.detach();
      self->strangers_.erase(found);
      if (self->on_member_) self->admit(socket);
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
  AsioSocket listener_;
  asio::steady_timer pause_;
  const Settings settings_;
  OnMember on_member_;
  std::set<pid_t> pids_;                      // of the members
  std::map<uint64_t, AsioSocket> strangers_;  // accepted, and have not said who they are; oldest first
  uint64_t last_stranger_ = 0;
};

IslandDoor::IslandDoor(asio::io_context& io, Descriptor listener, Settings settings, OnMember on_member)
    : state_(std::make_shared<State>(io, std::move(listener), std::move(settings), std::move(on_member))) {
  state_->start_soon();
}
IslandDoor::~IslandDoor() { state_->cancel(); }

}  // namespace rondo
