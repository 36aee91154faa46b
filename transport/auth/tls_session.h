#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "transport/auth/crypto.h"

struct ssl_st;  // OpenSSL's SSL

namespace rondo {

// One end of TLS 1.3 (RFC 8446) over any pair of byte pipes, by OpenSSL's libssl; a state machine without socket, clock
// or certificate. Both ends prove in the handshake that they have the key (an external pre-shared key) and exchange
// ephemeral Diffie-Hellman shares (mode psk_dhe_ke): who learns the key later does not open what was recorded. No
// tickets, no early data. One thread at a time, of both directions together.
class TlsSession {
 public:
  enum class End { kDialer, kAcceptor };  // TLS's client, TLS's server

  // Where records come from and go to.
  class Carrier {
   public:
    // Bytes moved; 0: none can be moved now; -1: it is over.
    virtual long read(void* target, size_t bytes) = 0;
    virtual long write(const void* bytes, size_t size) = 0;

   protected:
    ~Carrier() = default;
  };

  static constexpr size_t kRecordBytes = 16 * 1024;  // of plaintext, at most
  // What one write of the carrier takes: 16 MiB by single records took a sixth longer, by a system call for each.
  static constexpr size_t kBatchBytes = 8 * kRecordBytes;
  // Plaintext after which a writer replaces its direction's key. A record counts for 256 bytes at least, since AES-GCM
  // allows 2^24.5 records (RFC 8446, 5.5).
  static constexpr uint64_t kKeyBytes = uint64_t{1} << 32;

  // Throws Exception(kSystem) where OpenSSL refuses.
  TlsSession(End end, const Key& key, uint64_t key_bytes = kKeyBytes);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Does what can be done of the handshake now: 1 once it is over; 0: call it again when more has come; -1: the carrier
  // is over, or forged(). Takes no byte that follows the handshake.
  long shake_hands(Carrier& carrier);

  // After the handshake. Bytes of plaintext moved; 0: none can be moved now; -1: the carrier is over, or forged(). Only
  // plaintext of a whole record that was verified is handed out.
  long read(Carrier& carrier, void* target, size_t bytes);
  // At most kBatchBytes, which count as written once the carrier has taken all of their records. After a 0 the same
  // bytes are offered again: the next write() counts them, if it offers but one.
  long write(Carrier& carrier, const void* bytes, size_t size);

  // Something came that the peer has not sent: nothing more is read or written.
  bool forged() const { return forged_; }
  // All that was read from the carrier is handed out. An end of the carrier here lies between two records, else inside
  // one.
  bool between_records() const;
  // For data, after the handshake: several records by one read of the carrier, into memory that is kept. Else a session
  // that has nothing to do keeps no buffers.
  void read_ahead();

 private:
  friend struct TlsCallbacks;
  struct Free {
    void operator()(ssl_st* ssl) const;
  };

  // What a call of OpenSSL that did not succeed means: 0 or -1.
  long stopped(int result);
  // Sends a KeyUpdate: the writer's new key, which the reader derives, too.
  void replace_key();
  // seal() makes records in rest_, and flush() gives them to the carrier; true once it has them all.
  void seal(const void* bytes, size_t size);
  bool flush(Carrier& carrier);

  Key key_;
  const uint64_t key_bytes_;
  std::unique_ptr<ssl_st, Free> ssl_;
  Carrier* in_ = nullptr;   // of the call under way
  Carrier* out_ = nullptr;  // none: what is to be sent goes to rest_
  bool over_ = false;       // the carrier, in the call under way
  bool forged_ = false;
  std::string rest_;      // records for the carrier
  size_t taken_ = 0;      // bytes of rest_ that the carrier has
  size_t held_ = 0;       // plaintext that is sealed in them
  uint64_t written_ = 0;  // by the key in use, as kKeyBytes counts it
};

}  // namespace rondo
