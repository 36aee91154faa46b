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
#include "transport/tcp/socket.h"

namespace rondo {
namespace {

// A silent host is given up after so many probes.
constexpr int kKeepProbes = 3;

// TCP_RTO_MAX_MS of linux/tcp.h, since Linux 6.15, which older headers lack: the longest time to the next try.
constexpr int kLongestRetryOption = 44;
constexpr int64_t kShortestRetryMs = 1'000;  // that can be asked for

// Throws where the system refuses; `name` is for the message.
void set_option(int socket, int level, int option, int value, const char* name) {
  if (::setsockopt(socket, level, option, &value, sizeof value) == 0) return;
  throw Exception(system_error(fmt::format("setting {} to {}", name, value), errno));
}

// Probes of an idle connection: the first after idle_seconds, the others interval_seconds apart.
void keep_alive(int socket, int idle_seconds, int interval_seconds) {
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE");
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, idle_seconds, "TCP_KEEPIDLE");
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, interval_seconds, "TCP_KEEPINTVL");
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes, "TCP_KEEPCNT");
}

// Seconds, since the options count in seconds: first probe, and pause between probes. Three probes make the silence.
int third_of(int64_t silence_ms) { return static_cast<int>(std::clamp<int64_t>(silence_ms / 3'000, 1, 3'600)); }

// By default TCP doubles its time from try to try: after an outage of 7 s it tries at 12.6 s, beyond the suspicion. A
// kernel that does not know the option keeps to that. The kernel ends a connection after 14 tries in vain, which are
// longer than the suspicion, too.
void retry_often(int socket, int64_t silence_ms) {
  const int most = static_cast<int>(std::clamp<int64_t>(silence_ms / 10, kShortestRetryMs, 120'000));
  ::setsockopt(socket, IPPROTO_TCP, kLongestRetryOption, &most, sizeof most);
}

// False: errno says why (not loaded, or not allowed).
bool set_congestion(int socket, std::string_view name) {
  return ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0;
}

// The algorithm in use; "" where the system does not say.
std::string congestion(int socket) {
  std::array<char, 16> name{};  // TCP_CA_NAME_MAX
  socklen_t size = name.size();
  if (::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0) return {};
  return std::string(name.data(), strnlen(name.data(), size));
}

// A choice that fails under "auto" is left: the connection works, only slower.
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

// The suspicion of the heartbeats comes first, and names the rank; the kernel's own limit is for what is left.
int64_t silence_ms(const Config& config) {
  return config.heartbeat_ms > 0 ? config.suspicion_ms * 12 / 10 : store_silence_ms(config);
}

int64_t store_silence_ms(const Config& config) { return config.suspicion_ms * 9 / 10; }

SocketTuning tuning_of(const Config& config) {
  return {config.congestion_control, config.socket_buffer_bytes, silence_ms(config)};
}

// Tries it on a socket of its own, so that a mistake shows before anything is connected.
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

// By default probes after 4 s, and 4 s apart: an end 12 to 16 s after the host has vanished.
void tune_data_socket(int socket, const SocketTuning& tuning) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
  choose_congestion(socket, tuning);
  if (tuning.silence_ms <= 0) return;
  keep_alive(socket, third_of(tuning.silence_ms), third_of(tuning.silence_ms));
  retry_often(socket, tuning.silence_ms);
}

// By default when sent bytes or probes are unacknowledged for 12 s.
void tune_control_socket(int socket, int64_t silence_ms) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
  if (silence_ms <= 0) return;
  keep_alive(socket, third_of(silence_ms), std::max(third_of(silence_ms) - 1, 1));
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(std::min<int64_t>(silence_ms, INT32_MAX)),
             "TCP_USER_TIMEOUT");
  retry_often(socket, silence_ms);
}

bool is_loopback(int socket) {
  const SocketAddress peer = peer_address(socket);
  return peer.family() != AF_UNIX && peer.is_loopback();
}

}  // namespace rondo
