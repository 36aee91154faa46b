#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "transport/auth/tls_session.h"

namespace rondo::testing {

// Two pipes in memory between the ends of a session: each reads what the other has written.
class TlsPipes {
 public:
  TlsPipes() {
    sides_[0].other = &sides_[1];
    sides_[1].other = &sides_[0];
  }
  TlsSession::Carrier& side(int end) { return sides_[end]; }
  // What `end` has written and the other has not read.
  std::string& from(int end) { return sides_[end].written; }

 private:
  struct Side final : TlsSession::Carrier {
    long read(void* target, size_t bytes) override {
      const size_t moved = std::min(bytes, other->written.size());
      std::memcpy(target, other->written.data(), moved);
      other->written.erase(0, moved);
      return static_cast<long>(moved);
    }
    long write(const void* bytes, size_t size) override {
      written.append(static_cast<const char*>(bytes), size);
      return static_cast<long>(size);
    }
    std::string written;
    Side* other = nullptr;
  };
  Side sides_[2];
};

using TlsPair = std::pair<std::unique_ptr<TlsSession>, std::unique_ptr<TlsSession>>;

// The dialer's session and the acceptor's, with one key, before their handshake.
inline TlsPair new_sessions(uint64_t key_bytes = TlsSession::kKeyBytes) {
  return {std::make_unique<TlsSession>(TlsSession::End::kDialer, Key{7, 1}, key_bytes),
          std::make_unique<TlsSession>(TlsSession::End::kAcceptor, Key{7, 1}, key_bytes)};
}

// The same, behind it.
inline TlsPair open_sessions(uint64_t key_bytes = TlsSession::kKeyBytes) {
  TlsPair pair = new_sessions(key_bytes);
  TlsPipes pipes;
  REQUIRE(pair.first->shake_hands(pipes.side(0)) == 0);
  REQUIRE(pair.second->shake_hands(pipes.side(1)) == 0);
  REQUIRE(pair.first->shake_hands(pipes.side(0)) == 1);
  REQUIRE(pair.second->shake_hands(pipes.side(1)) == 1);
  REQUIRE(pipes.from(0).empty());
  REQUIRE(pipes.from(1).empty());
  return pair;
}

}  // namespace rondo::testing
