#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ring/base/descriptor.h"

namespace rondo {

// Unix sockets in the abstract namespace (no file is left behind) that keep messages apart (SOCK_SEQPACKET) and carry
// descriptors. All are non-blocking and closed on exec. Names are 32 hex digits.

std::string random_socket_name();
// Throws Exception(kSystem).
Descriptor listen_abstract(const std::string& name, int backlog);
// Invalid, with the system's `error`, if the socket cannot be reached; EAGAIN: its queue is full now.
Descriptor connect_abstract(const std::string& name, int& error);
// Invalid: no connection waits.
Descriptor accept_abstract(int listener);

inline constexpr size_t kMaxDescriptors = 4;  // of a message

enum class Sent { kYes, kLater, kOver };
// One message, whole. kLater: the peer's queue is full, or too many descriptors are under way.
Sent send_message(int socket, const void* message, size_t bytes, std::span<const int> descriptors, std::string& why);

// kOver: the connection has ended. kBroken: what came is no message of ours, so nothing after it can be trusted.
enum class Received { kYes, kNothing, kOver, kBroken };
// One message of exactly `bytes`. `descriptors` holds those that came with it.
Received receive_message(int socket, void* message, size_t bytes, std::vector<Descriptor>& descriptors,
                         std::string& why);

}  // namespace rondo
