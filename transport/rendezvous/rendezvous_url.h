#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport/rendezvous/store_wire.h"

namespace rondo {

// A rendezvous string, taken apart.
struct RendezvousUrl {
  enum class Kind { kNone, kTcp, kUnix, kFile, kUnique, kPmi, kPmix, kStore };
  Kind kind = Kind::kNone;
  std::string host;  // tcp, unique; without brackets
  uint16_t port = 0;
  std::string path;       // unix, file
  std::string port_file;  // tcp with port 0: where rank 0 publishes the port ("tcp://host:0?port_file=/path")
  StoreKey key{};         // unique
};

// "" is kNone. Throws Exception(kInvalid) saying which forms there are.
RendezvousUrl parse_rendezvous(std::string_view text);
// "tcp://host:port", with brackets round an IPv6 number.
std::string tcp_url(std::string_view host, uint16_t port);
// "unique:host:port:<32 hex digits>".
std::string unique_url(std::string_view host, uint16_t port, const StoreKey& key);

}  // namespace rondo
