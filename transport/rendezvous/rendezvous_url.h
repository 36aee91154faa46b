#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace rondo {

using UniqueKey = std::array<uint8_t, 16>;

// A rendezvous string, taken apart.
struct RendezvousUrl {
  // kStore: the program brings a store of its own (kProgramsStore).
  enum class Kind { kNone, kTcp, kUnix, kFile, kUnique, kPmi, kPmix, kStore };
  Kind kind = Kind::kNone;
  std::string host;  // tcp, unique; without brackets
  uint16_t port = 0;
  std::string path;  // unix, file
  UniqueKey key{};   // unique: the job's secret
};

// "" is kNone. Throws Exception(kInvalid) saying which forms there are.
RendezvousUrl parse_rendezvous(std::string_view text);
// "tcp://host:port", with brackets round an IPv6 number.
std::string tcp_url(std::string_view host, uint16_t port);
// "unique:host:port:<32 hex digits>".
std::string unique_url(std::string_view host, uint16_t port, const UniqueKey& key);
// The text for messages: without the key of a unique id.
std::string without_key(std::string_view rendezvous);

}  // namespace rondo
