#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <cerrno>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ring/base/check.h"
#include "ring/base/json_text.h"
#include "ring/base/process_handle.h"
#include "ring/base/process_starts.h"
#include "ring/base/system_error.h"
#include "transport/control/control_plane.h"
#include "transport/tcp/socket_options.h"

// The I/O thread's half of ControlPlane.

namespace rondo {
namespace {

using std::chrono::milliseconds;

// A neighbor that should have dialed and has not is looked for this often while the start waits.
constexpr milliseconds kProbeInterval{500};

// The name under which this rank keeps the connection of a hello: the peer's stream to it is its stream from the peer.
LinkName link_of(const Hello& hello) {
  const LinkKind kind = hello.role == Role::kData ? LinkKind::kData : LinkKind::kStreamFrom;
  return {hello.communicator, kind, static_cast<int>(hello.rank), hello.lane};
}

Answer answer_of(int rank, AnswerCode code = AnswerCode::kWelcome, std::string text = "") {
  Answer answer;
  answer.code = code;
  answer.rank = static_cast<uint32_t>(rank);
  answer.text = std::move(text);
  return answer;
}

// Why a process that knows the secret is no rank of this job with equal settings, or does not mean this rank; nullopt:
// it is, and does.
std::optional<Answer> refusal_of(const Hello& hello, const ControlPlane::Settings& own) {
  const int rank = own.rank;
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

// What one peer may have waiting for communicators that are not open here: its part of all of it, but at least the
// links and streams of a few.
size_t early_share(const ControlPlane::Settings& settings) {
  constexpr size_t kCommunicators = 4;
  const size_t least = kCommunicators * (size_t{settings.config.lanes} * settings.config.connections + 1);
  return std::max(least, settings.max_early / static_cast<size_t>(std::max(1, settings.world - 1)));
}

Descriptor make_event() {
  Descriptor event([&] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!event.valid()) throw Exception(system_error("eventfd", errno));
  return event;
}

// Settings::ended by a descriptor of this rank's own. The program may open another file by the launcher's number, and a
// program between the launcher and this one may have closed it: such a file's bytes prove no death.
Descriptor own_ended(const ControlPlane::Settings& settings) {
  if (settings.ended < 0) return {};
  Descriptor file([&] { return ::fcntl(settings.ended, F_DUPFD_CLOEXEC, 3); });
  constexpr std::string_view kMemory = "/memfd:";
  char name[kMemory.size()] = "";
  struct stat facts {};
  const bool named = file.valid() && ::readlink(fmt::format("/proc/thread-self/fd/{}", file.get()).c_str(), name,
                                                sizeof name) == static_cast<ssize_t>(sizeof name);
  if (named && std::string_view(name, sizeof name) == kMemory && ::fstat(file.get(), &facts) == 0 &&
      facts.st_size == settings.world) {
    return file;
  }
  settings.logger.warn(
      fmt::format("RONDO_ENDED: descriptor {} is no longer rondo-run's: a program between it and the ranks has closed "
                  "it (in Python pass_fds leaves it open). shrink() gets no word of the ends of other hosts' processes",
                  settings.ended));
  return {};
}

}  // namespace

// What Asio holds for the control plane. logic: ControlLogic and StartLogic. probe: neighbors that have not dialed.
// look: data sockets, and this process's own descriptors, once a heartbeat.
struct ControlPlane::Timers {
  Timers(asio::io_context& io, int wake_event) : logic(io), probe(io), look(io), wake(io, wake_event) {}
  ~Timers() { wake.release(); }
  asio::steady_timer logic, probe, look;
  asio::posix::stream_descriptor wake;  // the descriptor is ControlPlane's
  // The process of a rank that is lost and may live.
  struct Process {
    Process(asio::io_context& io, Descriptor of) : handle(std::move(of)), end(io, handle.get()) {}
    ~Process() { end.release(); }
    Descriptor handle;
    asio::posix::stream_descriptor end;
  };
  std::map<int, Process> processes;  // by rank
};

// thread_ runs before the members after it are made. It has no work until the post at the end, so its handlers find
// them all.
ControlPlane::ControlPlane(Settings settings)
    : settings_(std::move(settings)),
      wake_(make_event()),
      wake_identity_(wake_.get()),
      ended_(own_ended(settings_)),
      thread_([this](const Error& error) { on_exception(error); }),
      table_(settings_.config.connections, settings_.max_early, early_share(settings_)),
      mesh_(
          thread_.context(), settings_.rank, settings_.world,
          [this](int source, const ControlBody& body) { on_message(source, body); },
          [this](int peer, const std::string& why) { on_control_end(peer, why); },
          [this](int peer) {
            std::lock_guard lock(mutex_);
            if (logic_) logic_->liveness().heard(now(), peer);
          }),
      dialer_(thread_.context(), {settings_.rank, settings_.world, settings_.job_id, settings_.config, settings_.auth}),
      sockets_(silence_ms(settings_.config)),
      timers_(std::make_unique<Timers>(thread_.context(), wake_.get())) {
  Reception::Settings listening;
  for (const std::string& address : settings_.addresses) {
    listening.listeners.push_back(listen_in_range(address, settings_.ports, tuning_of(settings_.config)));
  }
  listening.handshake_timeout_ms = settings_.config.handshake_timeout_ms;
  // TCP may send again as long after an outage as that lasted.
  const int64_t given_up_ms = 2 * settings_.config.suspicion_ms;
  listening.confirm_timeout_ms = given_up_ms == 0 ? 0 : std::max(given_up_ms, listening.handshake_timeout_ms);
  listening.max_pending = settings_.max_pending;
  listening.max_known = settings_.max_known;
  listening.logger = settings_.logger;
  listening.auth = settings_.auth;
  listening.seals = settings_.config.encrypt;
  reception_ = std::make_unique<Reception>(
      thread_.context(), std::move(listening), [this](const Hello& hello) { return judge(hello); },
      [this](const Hello& hello, SecuredSocket socket) { welcome(hello, std::move(socket)); });
  thread_.post([this] {
    reception_->start();
    await_wake();
    look_at_sockets();
  });
}

ControlPlane::~ControlPlane() { thread_.stop(); }

// --- what a handler has thrown

// The rank's own failure ends everything that it takes part in; the process lives. The communicators are told by way of
// the logic, so that the others hear it, and, if memory does not even suffice for that, at once.
void ControlPlane::on_exception(const Error& error) noexcept {
  try {
    fail_everything(error);
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (logic_) static_cast<void>(logic_->take_actions());  // nobody waits for them to be said
    flushes_written_ = flushes_;
    for (const auto& [id, communicator] : communicators_) {
      if (communicator.events != nullptr) communicator.events->on_broken();
    }
    changed_.notify_all();
  }
}

// Before know() there is nobody to tell: broken_ fails the start once it is there.
void ControlPlane::fail_everything(const Error& error) {
  const Error named{error.code,
                    fmt::format("the I/O thread of rank {} failed: {}", settings_.rank,
                                error.message.empty() ? "out of memory" : error.message),
                    {settings_.rank}};
  {
    std::lock_guard lock(mutex_);
    broken_ = named;
    if (!logic_) return;
    start_->fail(named);
    for (const auto& [id, communicator] : communicators_) logic_->abort(id, named);
  }
  flush();
}

// --- wishes that came without memory: of a signal handler, of ring_io_thread()

// Armed before wake() acts, which may throw for want of memory.
void ControlPlane::await_wake() {
  timers_->wake.async_wait(asio::posix::stream_descriptor::wait_read, [this](asio::error_code failure) {
    if (failure) return;
    uint64_t times = 0;
    static_cast<void>(!::read(wake_.get(), &times, sizeof times));
    await_wake();
    wake();
  });
}

// A write to the event does not say what it is for, so everything that may be wanted is looked at.
void ControlPlane::wake() {
  const std::vector<uint64_t> ids = communicators();  // first: where memory ends here, the farewell stays wanted
  std::optional<Farewell> farewell;
  {
    std::lock_guard lock(mutex_);
    farewell = std::exchange(wanted_farewell_, std::nullopt);
  }
  for (const uint64_t id : ids) deliver(id, [](CommunicatorEvents& events) { events.on_wake(); });
  if (farewell) return begin_leave(*farewell);
  flush();
}

// --- data sockets in use

void ControlPlane::look_at_sockets() {
  timers_->look.expires_after(milliseconds(settings_.config.heartbeat_ms));
  timers_->look.async_wait([this](asio::error_code failure) {
    if (failure) return;
    look_at_sockets();
    look_at_own_descriptor();
    for (const DataSockets::Failure& failed : sockets_.look(now())) {
      const auto& [communicator, peer] = failed.key;
      tell_logic([&, communicator = communicator, peer = peer](ControlLogic& logic) {  // clang 14 captures no bindings
        logic.way_failed(now(), communicator, peer, {ErrorCode::kNetwork, failed.what, {peer}});
      });
    }
  });
}

// The one descriptor that nothing else looks at stands for all. Without them nothing comes and nothing goes.
void ControlPlane::look_at_own_descriptor() {
  if (descriptors_closed_ || wake_identity_.is_of(wake_.get())) return;
  {
    std::lock_guard lock(mutex_);
    descriptors_closed_ = true;
  }
  thread_.poll_from_now_on();
  fail_everything(system_error("its descriptors", EBADF));
}

// --- the logic's actions

// Carries out all actions, also those that their own delivery brings about. A post behind each batch counts it as
// written: connections post their writes when something is queued, and handlers run in the order of their posts.
void ControlPlane::flush() {
  if (!logic_) return;
  send_start_messages();
  while (true) {
    control::Actions actions;
    {
      std::lock_guard lock(mutex_);
      actions = logic_->take_actions();
      if (actions.empty()) break;
      ++flushes_;
    }
    for (const control::Action& action : actions) carry_out(action);
    thread_.post([this, flush = flushes_] {  // behind the writes
      {
        std::lock_guard lock(mutex_);
        flushes_written_ = std::max(flushes_written_, flush);  // on_exception() may have been here
      }
      changed_.notify_all();
    });
  }
  arm_timer();
  changed_.notify_all();
}

// An action for a rank or communicator that is gone by now does nothing.
void ControlPlane::carry_out(const control::Action& action) {
  if (const auto* send = std::get_if<control::Send>(&action)) {
    mesh_.send(send->peer, send->body);
  } else if (const auto* fail = std::get_if<control::Fail>(&action)) {
    deliver(fail->communicator, [&](CommunicatorEvents& events) { events.on_failure(fail->error, fail->stage); });
  } else if (const auto* left = std::get_if<control::PeerLeft>(&action)) {
    deliver(left->communicator,
            [&](CommunicatorEvents& events) { events.on_peer_left(left->peer, left->last_sequence); });
  } else if (const auto* note = std::get_if<control::Note>(&action)) {
    settings_.logger.warn(note->text);
  } else if (const auto* dropped = std::get_if<control::Drop>(&action)) {
    drop(dropped->peer);
  } else if (const auto* cut = std::get_if<control::Cut>(&action)) {
    mesh_.cut(cut->one, cut->other);
  } else if (const auto* gone = std::get_if<control::Gone>(&action)) {
    mesh_.forget(gone->peer);
    if (gone->lost) watch_process(gone->peer);
  }
}

// With what the other messages that have come bring about: a rank of a large world hears hundreds at once.
void ControlPlane::flush_soon() {
  if (flush_posted_) return;
  thread_.post([this] {
    flush_posted_ = false;
    flush();
  });
  flush_posted_ = true;
}

// Where the kernel can be asked for the process by its number: on this host, in the same name space of processes. A
// number that another process has by now proves nothing, and does no harm: that one lives.
void ControlPlane::watch_process(int peer) {
  const std::optional<Roster>& roster = dialer_.roster();
  if (!roster) return;
  const PeerCard& own = roster->card(settings_.rank);
  const PeerCard& card = roster->card(peer);
  if (card.host_identity != own.host_identity || card.process_class != own.process_class || own.process_class == 0) {
    return;
  }
  Descriptor process = open_process(static_cast<pid_t>(card.pid));
  if (!process.valid()) {
    if (errno != ESRCH) return;
    std::lock_guard lock(mutex_);
    return logic_->ended(now(), peer);  // flush() is under way
  }
  const auto [watched, fresh] = timers_->processes.try_emplace(peer, thread_.context(), std::move(process));
  if (!fresh) return;
  watched->second.end.async_wait(asio::posix::stream_descriptor::wait_read, [this, peer](asio::error_code failure) {
    if (failure) return;
    timers_->processes.erase(peer);
    tell_logic([&](ControlLogic& logic) { logic.ended(now(), peer); });
  });
}

// The launcher's word for processes of other hosts. Read at each tick: shrink() has one every Settings::resend_ms.
void ControlPlane::hear_launcher(ControlLogic& logic) {
  if (!ended_.valid()) return;
  std::vector<char> ended(static_cast<size_t>(settings_.world));
  if (::pread(ended_.get(), ended.data(), ended.size(), 0) != static_cast<ssize_t>(ended.size())) return;
  for (size_t rank = 0; rank < ended.size(); ++rank) {
    if (ended[rank] == 1 && rank != static_cast<size_t>(settings_.rank)) logic.ended(now(), static_cast<int>(rank));
  }
}

// Its start cannot succeed either, if that is still under way.
void ControlPlane::drop(int peer) {
  if (!mesh_.drop(peer)) return;
  std::lock_guard lock(mutex_);
  --live_controls_;
  start_->lost(now(), peer, "it does not answer");
}

// One timer for both machines. It is set anew only for an earlier time: one that fires too early does no harm.
void ControlPlane::arm_timer() {
  std::optional<ControlLogic::Time> next;
  {
    std::lock_guard lock(mutex_);
    next = logic_->next_time();
    if (const auto start = start_->next_time(); start) next = next ? std::min(*next, *start) : *start;
  }
  if (!next || (armed_for_ && *armed_for_ <= *next)) return;  // an early tick sets it anew
  armed_for_ = next;
  timers_->logic.expires_at(Clock::time_point(milliseconds(*next)));
  timers_->logic.async_wait([this](asio::error_code failure) {
    if (failure) return;
    armed_for_.reset();
    tell_start([](StartLogic& start) { start.tick(now()); });
    tell_logic([this](ControlLogic& logic) {
      if (logic.departures().anyone_lost()) hear_launcher(logic);
      logic.tick(now());
    });
  });
}

// Without the lock, since the events may call this object. close() waits while `delivering` is set, so they live as
// long as the call.
void ControlPlane::deliver(uint64_t communicator, const std::function<void(CommunicatorEvents&)>& call) {
  CommunicatorEvents* events = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto found = communicators_.find(communicator);
    if (found == communicators_.end() || found->second.events == nullptr) return;
    events = found->second.events;
    found->second.delivering = true;  // close() waits for the end of the call
  }
  struct Delivery {
    ~Delivery() {
      {
        std::lock_guard lock(plane.mutex_);
        plane.communicators_[communicator].delivering = false;
      }
      plane.changed_.notify_all();
    }
    ControlPlane& plane;
    const uint64_t communicator;
  } delivery{*this, communicator};
  call(*events);
}

// What the communicator does here; an empty state where it is not open.
CallState ControlPlane::ask(uint64_t communicator, uint64_t sequence) {
  CallState state;
  deliver(communicator, [&](CommunicatorEvents& events) { state = events.call_state(sequence); });
  state.slowest = sockets_.slowest();
  state.threads |= sockets_.anything_under_way(communicator);  // a message, perhaps: the network may have lost it once
  return state;
}

// What this rank waits in elsewhere; empty: in nothing.
std::string ControlPlane::waits_beside(uint64_t communicator) {
  for (const uint64_t id : communicators()) {
    std::string call;
    if (id != communicator) deliver(id, [&](CommunicatorEvents& events) { call = events.waits_in(); });
    if (call.empty()) continue;
    std::lock_guard lock(mutex_);
    const auto* other = logic_->find(id);
    return other == nullptr ? "" : fmt::format("{} of {}", call, other->members.title());
  }
  std::lock_guard lock(mutex_);
  const auto* own = logic_->find(communicator);  // not made: the start that is under way may be its own
  const bool made = own != nullptr && own->life.stage() == Stage::kUse;
  return made && starts_under_way.load() > 0 ? "init() or join() again, which makes a second group, for all ranks" : "";
}

std::vector<uint64_t> ControlPlane::communicators() {
  std::lock_guard lock(mutex_);
  std::vector<uint64_t> ids;
  for (const auto& [id, communicator] : communicators_) ids.push_back(id);
  return ids;
}

// Each communicator by itself: one that is closed meanwhile is left out.
std::vector<std::string> ControlPlane::status() {
  std::vector<std::string> all;
  for (const uint64_t id : communicators()) {
    const auto whom = [&](uint64_t sequence, const CallState& messages) {
      std::lock_guard lock(mutex_);
      const auto* open = logic_->find(id);
      return open == nullptr ? Waiting{} : open->inquiry.waiting(now(), sequence, messages);
    };
    deliver(id, [&](CommunicatorEvents& events) { all.push_back(events.status_json(whom)); });
  }
  return all;
}

std::string ControlPlane::metrics() {
  std::string text;
  for (const uint64_t id : communicators()) {
    deliver(id, [&](CommunicatorEvents& events) { text = events.metrics_text(); });
    if (!text.empty()) break;
  }
  return text;
}

// An event on the I/O thread, and all that follows from it.
void ControlPlane::tell_logic(const std::function<void(ControlLogic&)>& event) {
  {
    std::lock_guard lock(mutex_);
    event(*logic_);
  }
  flush();
}

// --- who may come in

// The hello is that of a process that knows the secret, or a replay of one; only the confirmation behind the welcome
// proves which. nullopt: the roster is not known here yet, and begin_start() asks again.
std::optional<Answer> ControlPlane::judge(const Hello& hello) {
  if (hello.role == Role::kStore) return answer_of(settings_.rank, AnswerCode::kForbidden, "no store is served here");
  if (auto refusal = refusal_of(hello, settings_)) return refusal;
  // After a failed start others may connect still, to hear why.
  if (leaving_ && (leaving_ == Farewell::kGoodbye || hello.role != Role::kControl)) {
    return answer_of(settings_.rank, AnswerCode::kForbidden, fmt::format("rank {} is leaving", settings_.rank));
  }
  if (!dialer_.roster()) return std::nullopt;
  if (hello.session != dialer_.roster()->session()) {
    return answer_of(settings_.rank, AnswerCode::kSession,
                     fmt::format("you are not the rank {} that was started with rank {}", hello.rank, settings_.rank));
  }
  return judge_link(hello);
}

// The numbers of the hello are the peer's: rank and world have been compared, and lane, connection and communicator are
// here.
Answer ControlPlane::judge_link(const Hello& hello) {
  const int rank = settings_.rank;
  const int peer = static_cast<int>(hello.rank);
  std::lock_guard lock(mutex_);
  if (hello.role == Role::kControl) {
    if (start_->missing().count(peer) && peer > rank) return answer_of(settings_.rank);
    return answer_of(settings_.rank, AnswerCode::kRank,
                     fmt::format("rank {} is connected to rank {} already", peer, rank));
  }
  if (logic_->departures().gone(peer))
    return answer_of(settings_.rank, AnswerCode::kForbidden, fmt::format("rank {} has left", peer));
  const Config& config = settings_.config;
  const bool data = hello.role == Role::kData;
  if (data ? peer < rank || hello.connections != config.connections || hello.lane >= config.lanes
           : hello.connections != 1 || hello.lane != 0) {
    return answer_of(settings_.rank, AnswerCode::kForbidden, "this is not how a link is made");
  }
  if (!logic_->may_join(hello.communicator, peer)) {
    return answer_of(settings_.rank, AnswerCode::kForbidden, "you are no member of this communicator");
  }
  switch (table_.fits(link_of(hello), hello.connection)) {
    case PendingLinks::Fit::kYes:
      return answer_of(settings_.rank);
    case PendingLinks::Fit::kLater:
      return answer_of(settings_.rank, AnswerCode::kBusy, "too many links wait to be opened");
    case PendingLinks::Fit::kNo:
      break;
  }
  return answer_of(settings_.rank, AnswerCode::kForbidden, "this link exists already, or its communicator is closed");
}

// The dialer has confirmed. What was true when it was welcomed is looked at again.
void ControlPlane::welcome(const Hello& hello, SecuredSocket socket) {
  if (hello.role == Role::kControl) {
    add_control(static_cast<int>(hello.rank), std::move(socket));
  } else {
    add_link(link_of(hello), hello.connection, std::move(socket));
  }
}

// Both ways lead here: the dial of a lower rank, and the welcome of a higher one.
void ControlPlane::add_control(int peer, SecuredSocket socket) {
  {
    std::lock_guard lock(mutex_);
    if (!start_->missing().count(peer)) return;  // welcomed twice: the first that confirmed counts
  }
  try {
    tune_control_socket(socket.socket.get(), silence_ms(settings_.config));
  } catch (const Exception& failure) {
    return tell_start([&](StartLogic& start) { start.fail(failure.error()); });
  }
  mesh_.add(peer, std::move(socket));
  {
    std::lock_guard lock(mutex_);
    ++live_controls_;
    logic_->liveness().watch(now(), peer);
  }
  dialer_.forget_knock(peer);
  tell_start([peer](StartLogic& start) { start.connected(peer); });
  if (leaving_) mesh_.finish(peer);
}

// A socket that was dialed or accepted. Its communicator may not be open here yet: then the table keeps it.
void ControlPlane::add_link(const LinkName& name, uint32_t index, SecuredSocket socket) {
  try {
    tune_data_socket(socket.socket.get(), tuning_of(settings_.config));
  } catch (const Exception& failure) {
    return link_dial_failed(name, failure.error());
  }
  bool complete = false;
  {
    std::lock_guard lock(mutex_);
    if (table_.fits(name, index) == PendingLinks::Fit::kNo) return;  // closed meanwhile
    complete = table_.add(name, index, std::move(socket));
  }
  // A communicator that is opened only now rings by itself (open()).
  if (const auto bell = complete ? doorbell(name) : nullptr) bell->ring();
  if (name.kind != LinkKind::kStreamFrom) return;
  tell_logic([&](ControlLogic& logic) { logic.streamed(name.communicator, name.peer); });
}

// --- the start

// Hellos that came before this rank knew the others are judged now; then the lower neighbors are dialed.
void ControlPlane::begin_start(Clock::time_point deadline) {
  reception_->reconsider();
  for (int peer : control_neighbors(settings_.rank, settings_.world)) {
    if (peer > settings_.rank) continue;
    dialer_.dial_control(peer, deadline, [this, peer](DialResult result) {
      if (!result.error.ok()) return control_failed(peer, result.error);
      add_control(peer, std::move(result.socket));
    });
  }
  probe_missing(deadline);
}

// Higher ranks dial this one. One that died after it was listed never will, and no other rank may notice: so their
// listeners are knocked at; after a failure too, while this rank waits for them.
void ControlPlane::probe_missing(Clock::time_point deadline) {
  const auto now = Clock::now();
  timers_->probe.expires_at(now < deadline ? std::min(now + kProbeInterval, deadline) : now + kProbeInterval);
  timers_->probe.async_wait([this, deadline](asio::error_code failure) {
    if (!failure && Clock::now() >= deadline) fail_late();
    std::set<int> missing;
    {
      std::lock_guard lock(mutex_);
      if (failure || start_->phase() == StartLogic::Phase::kDone) return;
      missing = start_->missing();
    }
    for (int peer : missing) {
      if (peer < settings_.rank) continue;
      dialer_.knock(peer, deadline, [this, peer](const DialResult& result) {
        const ErrorCode code = result.error.code;
        if (code == ErrorCode::kPeerLost || code == ErrorCode::kUnresponsive) control_failed(peer, result.error);
      });
    }
    probe_missing(deadline);
  });
}

// The deadline of the start. A rank that took the connection and does not answer is stopped or busy; else the way
// between the two is to blame.
void ControlPlane::fail_late() {
  constexpr size_t kMostDescribed = 4;
  Error error{ErrorCode::kBootstrap, "", {}};
  {
    std::lock_guard lock(mutex_);
    if (start_->phase() != StartLogic::Phase::kRunning) return;
    start_->tick(std::numeric_limits<StartLogic::Time>::max());  // a death that still waits for a better reason
    error.ranks.assign(start_->missing().begin(), start_->missing().end());
  }
  const size_t missing = error.ranks.size();
  for (size_t i = 0; i < missing; ++i) {
    const auto [why, accepted] = dialer_.why_missing(error.ranks[i]);
    if (!accepted) error.code = ErrorCode::kNetwork;
    if (i < kMostDescribed) error.message += why + "; ";
  }
  if (missing > kMostDescribed) error.message += fmt::format("and {} more ranks; ", missing - kMostDescribed);
  error.message += "the start's deadline has passed (RONDO_START_TIMEOUT_MS)";
  if (error.code == ErrorCode::kNetwork) {
    error.message += fmt::format("; {}", kReachAdvice);
    error.ranks.insert(std::lower_bound(error.ranks.begin(), error.ranks.end(), settings_.rank), settings_.rank);
  }
  tell_start([&](StartLogic& start) { start.fail(error); });
}

// kPeerLost here is a guess by "connection refused", which a firewall may say as well: the others are asked first.
void ControlPlane::control_failed(int peer, const Error& error) {
  if (error.code == ErrorCode::kPeerLost) {
    tell_start([&](StartLogic& start) { start.unreached(now(), peer, error.message); });
  } else if (error.code == ErrorCode::kUnresponsive) {  // the network's fault, or a host's that has vanished
    const std::vector<int> both{std::min(peer, settings_.rank), std::max(peer, settings_.rank)};
    tell_start([&](StartLogic& start) { start.fail({ErrorCode::kNetwork, error.message, both}); });
  } else if (error.code != ErrorCode::kTimeout) {  // fail_late() names all that are missing
    const bool specific = error.code == ErrorCode::kAuthFailed || error.code == ErrorCode::kSystem;
    const ErrorCode code = specific ? error.code : ErrorCode::kBootstrap;
    const int culprit = code == ErrorCode::kSystem ? settings_.rank : peer;
    tell_start([&](StartLogic& start) { start.fail({code, error.message, {culprit}}); });
  }
}

void ControlPlane::tell_start(const std::function<void(StartLogic&)>& event) {
  {
    std::lock_guard lock(mutex_);
    event(*start_);
  }
  flush();
}

void ControlPlane::send_start_messages() {
  std::vector<std::pair<int, ControlBody>> messages;
  {
    std::lock_guard lock(mutex_);
    messages = start_->take_messages();
  }
  for (const auto& [peer, message] : messages) mesh_.send(peer, message);
}

// --- control messages

// Messages of any rank, by whatever way they came. Questions are answered by the engine first, without the lock.
void ControlPlane::on_message(int source, const ControlBody& body) {
  if (const auto* question = std::get_if<QueryMessage>(&body)) {
    CallState own = ask(question->communicator, question->sequence);
    if (!own.takes_part(question->sequence)) own.text = waits_beside(question->communicator);
    return tell_logic([&](ControlLogic& logic) { logic.query(source, *question, own); });
  }
  if (const auto* wish = std::get_if<ConnectMessage>(&body)) {
    const LinkName name{wish->communicator, LinkKind::kData, source, wish->lane};
    std::unique_lock lock(mutex_);
    const bool sound = source < settings_.rank && name.lane < static_cast<int>(settings_.config.lanes) &&
                       logic_->may_join(name.communicator, source);
    const bool first = sound && !logic_->departures().gone(source) && table_.want(name);
    lock.unlock();
    if (first) dial_link(name);
    return;
  }
  if (const auto* lost = std::get_if<LostMessage>(&body); lost && lost->fate == LostMessage::Fate::kUnreached) {
    // Behind the end of a connection that has come together with it.
    return thread_.post([this, source, question = *lost] { on_question(source, question); });
  }
  if (const auto* abort = std::get_if<AbortMessage>(&body); abort && abort->communicator == 0) {
    settings_.logger.info(fmt::format("{} failed to start: {}", peer_name(source), abort->error.message));
    on_failed_start(source, *abort);
    return mesh_.finish(source);
  }
  const auto* abort = std::get_if<AbortMessage>(&body);
  const bool leaves = std::holds_alternative<LeaveMessage>(body);
  {
    std::lock_guard lock(mutex_);
    if (abort != nullptr) start_->failed_later(source, abort->error);
    logic_->receive(now(), source, body);
  }
  // An abort goes on to the neighbors before what is passed on to them next: its sender's goodbye, which would be taken
  // for the cause.
  if (abort == nullptr && !leaves) return flush_soon();
  flush();
  if (leaves) mesh_.finish(source);
}

// The rank in question comes from a peer, and is compared with the world before it is used.
void ControlPlane::on_question(int by, const LostMessage& question) {
  if (question.rank >= static_cast<uint32_t>(settings_.world)) return;
  const int about = static_cast<int>(question.rank);
  if (started()) return tell_logic([&](ControlLogic& logic) { logic.unreached(now(), about, by, question.why); });
  tell_start([&](StartLogic& start) { start.asked(about, by, question.why); });
}

// The same message means another thing after this rank's own start: then it is a departure.
void ControlPlane::on_failed_start(int source, const AbortMessage& abort) {
  if (started()) return tell_logic([&](ControlLogic& logic) { logic.receive(now(), source, abort); });
  tell_start([&](StartLogic& start) { start.gave_up(source, abort.error); });
}

// Requires that the lock is not held.
bool ControlPlane::started() const {
  std::lock_guard lock(mutex_);
  return start_->phase() == StartLogic::Phase::kDone;
}

// Called by the mesh also for a peer that broke the protocol: it is lost then. After its own farewell this rank expects
// all ends.
void ControlPlane::on_control_end(int peer, const std::string& why) {
  if (!mesh_.remove(peer)) return;
  {
    std::lock_guard lock(mutex_);
    --live_controls_;
  }
  tell_logic([&](ControlLogic& logic) {
    if (!leaving_) logic.connection_ended(now(), peer, why);
  });
  tell_start([&](StartLogic& start) { start.lost(now(), peer, why); });
}

// --- data links

void ControlPlane::bring_about(const LinkName& name) {
  if (name.kind == LinkKind::kStreamTo || name.peer < settings_.rank) return dial_link(name);
  mesh_.send(name.peer, ConnectMessage{name.communicator, static_cast<uint16_t>(name.lane)});
}

// Each connection of the link is added as it comes; the first that fails ends the others.
void ControlPlane::dial_link(const LinkName& name) {
  if (leaving_) return;
  dialer_.dial_link(name, [this, name](uint32_t index, DialResult result) {
    if (!result.error.ok()) return link_dial_failed(name, result.error);
    add_link(name, index, std::move(result.socket));
  });
}

void ControlPlane::link_dial_failed(const LinkName& name, const Error& error) {
  // The rest of the link is of no use.
  dialer_.forget_link(name);
  const ErrorCode code = error.code == ErrorCode::kSystem ? error.code : ErrorCode::kNetwork;
  const int culprit = code == ErrorCode::kSystem ? settings_.rank : name.peer;
  const Error network{code, error.message, {culprit}};
  bool open = false;
  {
    std::lock_guard lock(mutex_);
    open = logic_->find(name.communicator) != nullptr;
  }
  if (open) {
    return tell_logic([&](ControlLogic& logic) { logic.link_failed(now(), name.communicator, name.peer, network); });
  }
  // Only the other side has opened the communicator yet: it asked for the link, so it is told; and here it fails when
  // it is opened.
  const AbortMessage message{name.communicator,
                             Stage::kMaking,
                             {code,
                              fmt::format("the data connection between {} and {} failed: {}", peer_name(settings_.rank),
                                          peer_name(name.peer), error.message),
                              {culprit}}};
  mesh_.send(name.peer, message);
  tell_logic([&](ControlLogic& logic) { logic.receive(now(), name.peer, message); });
}

// After kGoodbye nobody may connect any more. After kFailedStart neighbors that are not connected yet still may, to
// hear why (StartLogic::untold()).
void ControlPlane::begin_leave(Farewell farewell) {
  leaving_ = farewell;
  dialer_.forget_links();
  if (farewell == Farewell::kGoodbye) {
    reception_->stop();
    dialer_.forget_starts();
    timers_->probe.cancel();
    tell_logic([](ControlLogic& logic) { logic.leave(); });
  } else {
    flush();  // says why, before nothing more can be said
  }
  mesh_.finish_all();
  changed_.notify_all();
}

}  // namespace rondo
