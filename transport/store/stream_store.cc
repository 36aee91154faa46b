#include "transport/store/stream_store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "ring/base/figures.h"
#include "ring/base/system_error.h"
#include "rondo/error.h"
#include "transport/hello/handshake.h"
#include "transport/hello/secured_socket.h"
#include "transport/tcp/socket_options.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

// Between two attempts to connect: doubled each time, since all ranks may wait for rank 0.
constexpr auto kFirstPause = std::chrono::milliseconds(1);
constexpr auto kLongestPause = std::chrono::milliseconds(100);
constexpr auto kLogInterval = std::chrono::seconds(10);

// kClosed: the connection has ended or failed. kTimeout: the deadline has come; what has moved counts.
enum class Transfer { kDone, kClosed, kTimeout };

// What was sent is taken off `bytes`. kClosed: errno says why, 0 in good order.
Transfer send_all(int fd, std::string_view& bytes, Store::Deadline deadline) {
  while (!bytes.empty()) {
    ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      if (!wait_ready(fd, POLLOUT, deadline)) return Transfer::kTimeout;
    } else if (errno != EINTR) {
      return Transfer::kClosed;
    }
  }
  return Transfer::kDone;
}

// What is there, at least one byte; kClosed: as of send_all().
Transfer receive_some(int fd, char* target, size_t* size, Store::Deadline deadline) {
  while (true) {
    const ssize_t n = ::recv(fd, target, *size, 0);
    if (n > 0) {
      *size = static_cast<size_t>(n);
      return Transfer::kDone;
    }
    if (n == 0) errno = 0;
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) return Transfer::kClosed;
    if (errno == EAGAIN && !wait_ready(fd, POLLIN, deadline)) return Transfer::kTimeout;
  }
}

// Exactly `size` bytes, a bound that the caller has checked.
Transfer receive_all(int fd, size_t size, Store::Deadline deadline, std::string* bytes) {
  bytes->resize(size);
  for (size_t have = 0; have < size;) {
    size_t some = size - have;
    const Transfer result = receive_some(fd, bytes->data() + have, &some, deadline);
    if (result != Transfer::kDone) return result;
    have += some;
  }
  return Transfer::kDone;
}

// How a connection ended, by the system's number; 0: in good order.
std::string ending(int number) {
  if (number == 0 || number == ECONNRESET || number == EPIPE) return "the process that serves it ended";
  return fmt::format("its host, or the network to it, gives no sign of life ({})", std::strerror(number));
}

[[noreturn]] void refuse(std::string message) { throw Exception(ErrorCode::kBootstrap, std::move(message)); }

// What waiting does not change.
[[noreturn]] void refuse(const std::string& where, const Error& error) {
  const std::string message = fmt::format("the store at {}: {}", where, error.message);
  switch (error.code) {
    case ErrorCode::kAuthFailed:
      throw Exception(ErrorCode::kAuthFailed, message);
    case ErrorCode::kProtocol:
      refuse(
          fmt::format("{} is not Rondo's store: another program listens there (set RONDO_MASTER_PORT to a free "
                      "port)",
                      where));
    default:
      refuse(
          message +
          ". RONDO_RENDEZVOUS, or RONDO_MASTER_PORT (or MASTER_PORT), says which store, RONDO_JOB_ID which job: both "
          "must be equal on all ranks");
  }
}

}  // namespace

// Tries until the deadline. Every 10 s the log says why it has not come about.
void StreamStore::connect(Deadline deadline) {
  auto pause = kFirstPause;
  Clock::time_point start = Clock::now(), next_log = start + kLogInterval;
  std::string why = "no attempt was made";
  while (true) {
    if (try_connect(deadline, &why)) return;
    Clock::time_point now = Clock::now();
    if (now >= deadline) {
      throw Exception(ErrorCode::kTimeout,
                      fmt::format("the store at {} could not be reached before the deadline: {}", options_.name, why));
    }
    if (now >= next_log) {
      options_.log.warn(fmt::format("still trying to reach rank 0's store at {} after {} s: {}", options_.name,
                                    std::chrono::duration_cast<std::chrono::seconds>(now - start).count(), why));
      next_log = now + kLogInterval;
    }
    wait_ready(-1, 0, std::min<Clock::time_point>(now + pause, deadline));
    pause = std::min(2 * pause, kLongestPause);
  }
}

// Tries each address once. Names are resolved anew each time: they may become known while the job starts.
bool StreamStore::try_connect(Deadline deadline, std::string* why) {
  std::vector<SocketAddress> addresses;
  try {
    addresses = options_.addresses(deadline);
  } catch (const Exception& e) {
    if (e.code() != ErrorCode::kNetwork) throw;
    *why = e.what();  // names may become known while the job starts
    return false;
  }
  if (addresses.empty()) *why = "its address is not published yet";
  for (const SocketAddress& address : addresses) {
    Deadline attempt = std::min<Deadline>(deadline, Clock::now() + std::chrono::milliseconds(options_.handshake_ms));
    Descriptor socket = connect_socket(address, attempt);
    if (!socket.valid()) {
      if (errno == EPERM) throw Exception(system_error("connecting to " + address.text(), errno));  // and ever will be
      *why = fmt::format("{}: {}", address.text(), std::strerror(errno));
      continue;
    }
    if (address.family() != AF_UNIX) tune_control_socket(socket.get(), options_.silence_ms);
    if (shake_hands(std::move(socket), address, attempt, why)) return true;
  }
  return false;
}

// The first bytes of the answer are looked at alone, so that another program's greeting is recognized at once and not
// waited for until the deadline. A peer that is silent or busy is worth another try; one that refuses is not, and
// refuse() throws.
bool StreamStore::shake_hands(Descriptor socket, const SocketAddress& address, Deadline deadline, std::string* why) {
  std::string where = address.text();
  if (address.family() == AF_UNIX) {  // another user could put a socket there first
    if (const std::string stranger = check_peer(socket.get(), 0); !stranger.empty()) {
      refuse(fmt::format("{} is served by another user's process: {}", where, stranger));
    }
  }
  *why = fmt::format("{} accepted the connection, but did not answer", where);
  Hello hello;
  hello.role = Role::kStore;
  hello.job_id = bounded_job_id(options_.job_id);
  hello.sealed = options_.encrypt;
  DialerHandshake handshake(hello, options_.auth);
  std::string_view hello_bytes = handshake.hello();
  if (send_all(socket.get(), hello_bytes, deadline) != Transfer::kDone) return false;
  std::string begin, rest;
  if (receive_all(socket.get(), kWireMagic.size(), deadline, &begin) != Transfer::kDone) return false;
  if (begin == kWireMagic &&
      receive_all(socket.get(), kAnswerBytes - begin.size(), deadline, &rest) != Transfer::kDone) {
    return false;
  }
  const DialerHandshake::Verdict verdict = handshake.judge(begin + rest);
  if (verdict.busy) {
    *why = verdict.error.message;
    return false;
  }
  if (!verdict.welcome) refuse(where, verdict.error);
  const std::string confirm = handshake.confirm();
  std::string_view confirm_bytes = confirm;
  if (send_all(socket.get(), confirm_bytes, deadline) != Transfer::kDone) return false;
  std::unique_ptr<TlsSession> session;
  if (const auto key = handshake.tls_key()) session = std::make_unique<TlsSession>(TlsSession::End::kDialer, *key);
  for (long done = 0; session && done == 0;) {
    done = rondo::shake_hands(*session, socket.get(), *why);
    if (done < 0 || (done == 0 && !wait_ready(socket.get(), POLLIN, deadline))) return false;
  }
  socket_ = std::move(socket);
  seal_.use(std::move(session));
  owner_ = ::getpid();
  return true;
}

// The connection is over for good: with its end the server has carried out this client's will.
void StreamStore::lost(const std::string& why) {
  socket_.reset();
  gone_ = why;
  throw Exception(ErrorCode::kBootstrap, fmt::format("the store at {} is gone: {}", options_.name, why));
}

void StreamStore::late(const std::string& key) const {
  throw Exception(ErrorCode::kTimeout,
                  fmt::format("the store at {} had no answer about \"{}\" before the deadline", options_.name, key));
}

// One request at a time. A request that ran out is answered later; its number tells the late answer from this one.
StoreReply StreamStore::transact(StoreRequest request, Deadline deadline) {
  if (owner_ != 0 && owner_ != ::getpid()) {
    throw Exception(ErrorCode::kInvalid, "this store was opened before fork(): a child must open its own");
  }
  if (!gone_.empty()) lost(gone_);
  if (!socket_.valid()) connect(deadline);
  send_rest(request.key, deadline);  // of an earlier call: so it is one request at most
  request.number = ++requests_;
  seal_.seal(encode_request(request), rest_);
  send_rest(request.key, deadline);
  StoreReply reply = next_reply(request.key, deadline);
  while (reply.number != request.number) reply = next_reply(request.key, deadline);
  const bool sum = request.operation == StoreOperation::kAdd && reply.status != StoreStatus::kRefused;
  if (sum && !parse_number<int64_t>(reply.value)) lost("it sent a malformed answer");
  return reply;
}

void StreamStore::send_rest(const std::string& key, Deadline deadline) {
  std::string_view left = rest_;
  const Transfer result = send_all(socket_.get(), left, deadline);
  const int number = errno;
  rest_.erase(0, rest_.size() - left.size());
  if (result == Transfer::kClosed) lost(ending(number));
  if (result == Transfer::kTimeout) late(key);
}

// The next `size` bytes; they stay until the caller takes them off, so that a call that runs out here loses nothing.
std::string_view StreamStore::peek(const std::string& key, size_t size, Deadline deadline) {
  while (plain_.size() < size) {
    char buffer[16 * 1024];
    size_t some = sizeof buffer;
    const Transfer result = receive_some(socket_.get(), buffer, &some, deadline);
    if (result == Transfer::kClosed) lost(ending(errno));
    if (result == Transfer::kTimeout) late(key);
    if (!seal_.open({buffer, some}, plain_)) lost("its answer was changed on its way");
  }
  return std::string_view(plain_).substr(0, size);
}

// Lengths and numbers are checked before they are used: the server is authenticated, and may still be broken.
StoreReply StreamStore::next_reply(const std::string& key, Deadline deadline) {
  const size_t body_bytes = decode_frame_head(peek(key, kFrameHeadBytes, deadline));
  if (body_bytes > kMaxReplyBodyBytes) lost("it sent an answer of an impossible length");
  const std::string_view body = peek(key, kFrameHeadBytes + body_bytes, deadline).substr(kFrameHeadBytes);
  std::optional<StoreReply> reply = decode_reply(body);
  if (!reply || reply->number > requests_) lost("it sent a malformed answer");
  plain_.erase(0, kFrameHeadBytes + body_bytes);
  return *std::move(reply);
}

// A request like any other, but of this connection: the server keeps it with the client.
void StreamStore::leave_will(std::string_view key, std::string_view value, Deadline deadline) {
  ask({StoreOperation::kWill, std::string(key), std::string(value), "", 0}, deadline);
}

}  // namespace rondo
