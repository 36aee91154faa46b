#pragma once

#include <cstdint>
#include <string>

#include "rondo/config.h"

namespace rondo {

// What sockets are set to. All calls throw Exception(kSystem) or kInvalid naming the option; none blocks.

struct SocketTuning {
  // "auto": on loopback the first allowed of reno and cubic if the default is BBR (BBR paces loopback: 1.6 to 2 times
  // slower in measurements with 1 to 4 connections), else left alone. "": left alone. Otherwise that algorithm.
  std::string congestion_control = "auto";
  uint32_t buffer_bytes = 0;  // 0: the kernel's choice, which grows with use
  int64_t silence_ms = 0;     // silence_ms(config)
};

SocketTuning tuning_of(const Config& config);
// For how long the kernel may go without a sign of life of a peer's host; 0: for as long as it likes. Above the
// suspicion where heartbeats find a silent rank, so that a vanished host has one error; else below.
int64_t silence_ms(const Config& config);
// The same of a connection without heartbeats, to the meeting point: below the suspicion.
int64_t store_silence_ms(const Config& config);
// Throws Exception(kInvalid) if the named congestion control cannot be set here.
void check_tuning(const SocketTuning& tuning);

// Buffers: before connect() or listen(), so that the window scale fits them.
void set_buffers(int socket, const SocketTuning& tuning);
// After the connection is made: no delay for small slices, congestion control, and an end, some time after
// tuning.silence_ms, when the other host vanishes while nothing is under way to it (DataSockets looks at what is).
void tune_data_socket(int socket, const SocketTuning& tuning);
// After the connection is made: no delay, and an end after `silence_ms` when the other host vanishes.
void tune_control_socket(int socket, int64_t silence_ms);
// Both ends are on this machine's loopback.
bool is_loopback(int socket);

}  // namespace rondo
