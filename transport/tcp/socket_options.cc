#include "transport/tcp/socket_options.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "ring/base/descriptor.h"
#include "ring/base/system_error.h"
#include "rondo/error.h"

namespace rondo {
namespace {

// A silent host is given up after so many probes.
constexpr int kKeepProbes = 3;

void set_option(int socket, int level, int option, int value, const char* name) {
  if (::setsockopt(socket, level, option, &value, sizeof value) == 0) return;
  throw Exception(system_error(fmt::format("setting {} to {}", name, value), errno));
}

void keep_alive(int socket, int idle_seconds, int interval_seconds) {
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE");
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, idle_seconds, "TCP_KEEPIDLE");
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, interval_seconds, "TCP_KEEPINTVL");
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes, "TCP_KEEPCNT");
}

int third_of(int64_t silence_ms) { return static_cast<int>(std::clamp<int64_t>(silence_ms / 3'000, 1, 3'600)); }

bool set_congestion(int socket, std::string_view name) {
  return ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0;
}

std::string congestion(int socket) {
  std::array<char, 16> name{};  // TCP_CA_NAME_MAX
  socklen_t size = name.size();
  if (::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0) return {};
  return std::string(name.data(), strnlen(name.data(), size));
}

void choose_congestion(int socket, const SocketTuning& tuning) {
  if (tuning.congestion_control.empty()) return;
  if (tuning.congestion_control != "auto") {
    set_congestion(socket, tuning.congestion_control);  // check_tuning() has proved that it can be set
    return;
  }
  if (congestion(socket).rfind("bbr", 0) != 0 || !is_loopback(socket)) return;
  for (std::string_view name : {"reno", "cubic"}) {
    if (set_congestion(socket, name)) return;
  }
}

}  // namespace

int64_t silence_ms(const Config& config) { return config.suspicion_ms * 9 / 10; }

SocketTuning tuning_of(const Config& config) {
  return {config.congestion_control, config.socket_buffer_bytes, silence_ms(config)};
}

void check_tuning(const SocketTuning& tuning) {
  if (tuning.congestion_control.empty() || tuning.congestion_control == "auto") return;
  Descriptor socket([&] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); });
  if (!socket.valid()) throw Exception(system_error("making a socket", errno));
  if (set_congestion(socket.get(), tuning.congestion_control)) return;
  throw Exception(ErrorCode::kInvalid,
                  fmt::format("RONDO_TCP_CONGESTION={}: {}; /proc/sys/net/ipv4/tcp_allowed_congestion_control lists "
                              "what may be set here",
                              tuning.congestion_control, std::strerror(errno)));
}

void set_buffers(int socket, const SocketTuning& tuning) {
  if (tuning.buffer_bytes == 0) return;
  set_option(socket, SOL_SOCKET, SO_SNDBUF, static_cast<int>(tuning.buffer_bytes), "SO_SNDBUF");
  set_option(socket, SOL_SOCKET, SO_RCVBUF, static_cast<int>(tuning.buffer_bytes), "SO_RCVBUF");
}

// By default probes after 3 s, and 3 s apart: 9 to 12 s after the host has vanished, where an idle control connection,
// which has heartbeats, ends after 9 s.
void tune_data_socket(int socket, const SocketTuning& tuning) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
  choose_congestion(socket, tuning);
  if (tuning.silence_ms > 0) keep_alive(socket, third_of(tuning.silence_ms), third_of(tuning.silence_ms));
}

// By default 3 s + 3 x 2 s, or when sent bytes are unacknowledged for 9 s, which is longer than a 2 s outage of a link.
void tune_control_socket(int socket, int64_t silence_ms) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
  if (silence_ms <= 0) return;
  keep_alive(socket, third_of(silence_ms), std::max(third_of(silence_ms) - 1, 1));
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(std::min<int64_t>(silence_ms, INT32_MAX)),
             "TCP_USER_TIMEOUT");
}

bool is_loopback(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return false;
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  if (address.ss_family != AF_INET6) return false;
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

}  // namespace rondo
