#include "transport/store/stream_store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>

#include "rondo/error.h"
#include "transport/hello/handshake.h"
#include "transport/store/store_map.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kFirstPause = std::chrono::milliseconds(1);
constexpr auto kLongestPause = std::chrono::milliseconds(100);
constexpr auto kLogInterval = std::chrono::seconds(10);

enum class Transfer { kDone, kClosed, kTimeout, kForged };  // kForged: a record is not what the server has sealed

Transfer send_all(int fd, std::string_view bytes, Store::Deadline deadline) {
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

// Exactly `size` bytes, a bound that the caller has checked.
Transfer receive_all(int fd, size_t size, Store::Deadline deadline, std::string* bytes) {
  bytes->resize(size);
  size_t have = 0;
  while (have < size) {
    ssize_t n = ::recv(fd, bytes->data() + have, size - have, 0);
    if (n > 0) {
      have += static_cast<size_t>(n);
    } else if (n < 0 && errno == EAGAIN) {
      if (!wait_ready(fd, POLLIN, deadline)) return Transfer::kTimeout;
    } else if (n == 0 || errno != EINTR) {
      return Transfer::kClosed;
    }
  }
  return Transfer::kDone;
}

// Exactly `size` bytes, from the front of `plain`, to which all that has come is added.
Transfer receive_opened(int fd, size_t size, Store::Deadline deadline, TextSeal& seal, std::string& plain,
                        std::string* bytes) {
  while (plain.size() < size) {
    char buffer[16 * 1024];
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n > 0) {
      if (!seal.open({buffer, static_cast<size_t>(n)}, plain)) return Transfer::kForged;
    } else if (n < 0 && errno == EAGAIN) {
      if (!wait_ready(fd, POLLIN, deadline)) return Transfer::kTimeout;
    } else if (n == 0 || errno != EINTR) {
      return Transfer::kClosed;
    }
  }
  *bytes = plain.substr(0, size);
  plain.erase(0, size);
  return Transfer::kDone;
}

// The server's uid is checked too: another user could put a socket there first.
bool served_by_same_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
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
      refuse(message +
             ". RONDO_MASTER_PORT (or MASTER_PORT) says which store, RONDO_JOB_ID which job: both must be equal on all "
             "ranks");
  }
}

}  // namespace

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

bool StreamStore::try_connect(Deadline deadline, std::string* why) {
  std::vector<SocketAddress> addresses;
  try {
    addresses = options_.addresses();
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
      *why = fmt::format("{}: {}", address.text(), std::strerror(errno));
      continue;
    }
    if (shake_hands(std::move(socket), address, attempt, why)) return true;
  }
  return false;
}

bool StreamStore::shake_hands(Descriptor socket, const SocketAddress& address, Deadline deadline, std::string* why) {
  std::string where = address.text();
  if (address.family() == AF_UNIX && !served_by_same_user(socket.get())) {
    refuse(fmt::format("{} is served by another user's process", where));
  }
  *why = fmt::format("{} accepted the connection, but did not answer", where);
  Hello hello;
  hello.role = Role::kStore;
  hello.job_id = bounded_job_id(options_.job_id);
  hello.ciphers = options_.encrypt ? own_ciphers() : 0;
  DialerHandshake handshake(hello, options_.auth);
  if (send_all(socket.get(), handshake.hello(), deadline) != Transfer::kDone) return false;
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
  if (send_all(socket.get(), handshake.confirm(), deadline) != Transfer::kDone) return false;
  socket_ = std::move(socket);
  seal_.use(handshake.keys());
  plain_.clear();
  reached_ = true;
  owner_ = ::getpid();
  return true;
}

void StreamStore::lost(const std::string& why) {
  socket_.reset();
  throw Exception(ErrorCode::kBootstrap,
                  fmt::format("the store at {} is gone ({}): the process that serves it ended", options_.name, why));
}

void StreamStore::late(const std::string& key) const {
  throw Exception(ErrorCode::kTimeout,
                  fmt::format("the store at {} had no answer about \"{}\" before the deadline", options_.name, key));
}

StoreReply StreamStore::transact(const StoreRequest& request, Deadline deadline) {
  check_store_entry(request.key, request.first);
  check_store_entry(request.key, request.second);
  if (owner_ != 0 && owner_ != ::getpid()) {
    throw Exception(ErrorCode::kInvalid, "this store was opened before fork(): a child must open its own");
  }
  if (!socket_.valid()) {
    std::string why;
    if (!reached_) {
      connect(deadline);
    } else if (!try_connect(deadline, &why)) {
      if (Clock::now() >= deadline) late(request.key);  // it may only be busy
      lost(why);
    }
  }
  std::string bytes;
  seal_.seal(encode_request(request), bytes);
  const auto receive = [&](size_t size) {
    return receive_opened(socket_.get(), size, deadline, seal_, plain_, &bytes);
  };
  Transfer result = send_all(socket_.get(), bytes, deadline);
  if (result == Transfer::kDone) result = receive(kFrameHeadBytes);
  if (result == Transfer::kDone) {
    size_t body_bytes = decode_frame_head(bytes);
    if (body_bytes > kMaxReplyBodyBytes) lost("it sent an answer of an impossible length");
    result = receive(body_bytes);
  }
  if (result == Transfer::kForged) lost("its answer was changed on its way");
  if (result == Transfer::kClosed) lost("it closed the connection");
  if (result == Transfer::kTimeout) {
    socket_.reset();
    late(request.key);
  }
  std::optional<StoreReply> reply = decode_reply(bytes);
  if (!reply) lost("it sent a malformed answer");
  if (reply->status == StoreStatus::kRefused) throw Exception(ErrorCode::kBootstrap, reply->value);
  return *reply;
}

void StreamStore::put(std::string_view key, std::string_view value, Deadline deadline) {
  transact({StoreOperation::kPut, std::string(key), std::string(value), "", 0}, deadline);
}

std::string StreamStore::get(std::string_view key, Deadline deadline) {
  return transact({StoreOperation::kGet, std::string(key), "", "", 0}, deadline).value;
}

std::optional<std::string> StreamStore::try_get(std::string_view key, Deadline deadline) {
  StoreReply reply = transact({StoreOperation::kTryGet, std::string(key), "", "", 0}, deadline);
  return reply.status == StoreStatus::kAbsent ? std::nullopt : std::optional(reply.value);
}

int64_t StreamStore::add(std::string_view key, int64_t amount, Deadline deadline) {
  std::string text = transact({StoreOperation::kAdd, std::string(key), "", "", amount}, deadline).value;
  int64_t sum = 0;
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), sum);
  if (failure != std::errc() || end != text.data() + text.size()) lost("it sent a malformed answer");
  return sum;
}

std::string StreamStore::compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                     Deadline deadline) {
  return transact({StoreOperation::kCompareSet, std::string(key), std::string(expected), std::string(desired), 0},
                  deadline)
      .value;
}

bool StreamStore::remove(std::string_view key, Deadline deadline) {
  return transact({StoreOperation::kRemove, std::string(key), "", "", 0}, deadline).status == StoreStatus::kOk;
}

}  // namespace rondo
