#include "transport/auth/tls_session.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "rondo/error.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace rondo {
namespace {

// The pre-shared key goes with the hash of the suites: SHA-256, of both.
constexpr const char* kAesFirst = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr const char* kChaChaFirst = "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256";
constexpr unsigned char kSuiteOfKey[2] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256
constexpr std::string_view kIdentity = "rondo";         // the connection's handshake has found the key already
// Read by one call of the carrier: four records, each with a header of 5 bytes and a type and tag of 17.
constexpr size_t kReadBytes = 4 * (TlsSession::kRecordBytes + 22);
// What a record counts for at least: 2^24 records have one key.
constexpr size_t kKeyBytesOfRecord = TlsSession::kKeyBytes >> 24;

[[noreturn]] void refused(const char* what) {
  throw Exception(ErrorCode::kSystem, std::string("OpenSSL refused ") + what);
}

void require(bool done, const char* what) {
  if (!done) refused(what);
}

// Whether the processor has what AES-GCM takes; ChaCha20 is the faster one otherwise.
bool has_aes() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("aes") != 0 && __builtin_cpu_supports("pclmul") != 0;
#else
  constexpr unsigned long kBoth = HWCAP_AES | HWCAP_PMULL;
  return (::getauxval(AT_HWCAP) & kBoth) == kBoth;
#endif
}

// OpenSSL knows an external pre-shared key as a session that is resumed. nullptr: no memory. The caller owns it.
SSL_SESSION* session_of(SSL* ssl, const Key& key) {
  SSL_SESSION* const session = ::SSL_SESSION_new();
  const SSL_CIPHER* const suite = ::SSL_CIPHER_find(ssl, kSuiteOfKey);
  if (session != nullptr && suite != nullptr && ::SSL_SESSION_set1_master_key(session, key.data(), key.size()) == 1 &&
      ::SSL_SESSION_set_cipher(session, suite) == 1 &&
      ::SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  ::SSL_SESSION_free(session);
  return nullptr;
}

}  // namespace

// What OpenSSL calls, by the session that it belongs to.
struct TlsCallbacks {
  static TlsSession& owner(SSL* ssl) { return *static_cast<TlsSession*>(SSL_get_app_data(ssl)); }

  // The dialer offers the key, and the acceptor looks for it whatever identity was offered: a connection has one key.
  static int use_key(SSL* ssl, const EVP_MD*, const unsigned char** identity, size_t* bytes, SSL_SESSION** session) {
    *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
    *bytes = kIdentity.size();
    *session = session_of(ssl, owner(ssl).key_);
    return *session != nullptr;
  }
  static int find_key(SSL* ssl, const unsigned char*, size_t, SSL_SESSION** session) {
    *session = session_of(ssl, owner(ssl).key_);
    return *session != nullptr;
  }

  // A retry flag and -1 mean that nothing can be moved now; over_ tells an end of the carrier from that (stopped()).
  static int read(BIO* bio, char* target, int bytes) {
    TlsSession& session = *static_cast<TlsSession*>(::BIO_get_data(bio));
    ::BIO_clear_retry_flags(bio);
    const long moved = session.over_ ? -1 : session.in_->read(target, static_cast<size_t>(bytes));
    if (moved > 0) return static_cast<int>(moved);
    // The end of the carrier is no error of TLS: the session stays as it is.
    session.over_ = moved < 0;
    ::BIO_set_retry_read(bio);
    return -1;
  }
  static int write(BIO* bio, const char* bytes, int size) {
    TlsSession& session = *static_cast<TlsSession*>(::BIO_get_data(bio));
    ::BIO_clear_retry_flags(bio);
    if (session.out_ == nullptr) {
      session.rest_.append(bytes, static_cast<size_t>(size));
      return size;
    }
    const long moved = session.over_ ? -1 : session.out_->write(bytes, static_cast<size_t>(size));
    if (moved > 0) return static_cast<int>(moved);
    session.over_ = moved < 0;
    ::BIO_set_retry_write(bio);
    return -1;
  }
  // OpenSSL asks for a flush when it has written; no other command means anything here.
  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }
};

namespace {

// A kind of BIO whose bytes go by a TlsSession::Carrier.
BIO_METHOD* make_method() {
  BIO_METHOD* const method = ::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "rondo carrier");
  require(method != nullptr && ::BIO_meth_set_read(method, TlsCallbacks::read) == 1 &&
              ::BIO_meth_set_write(method, TlsCallbacks::write) == 1 &&
              ::BIO_meth_set_ctrl(method, TlsCallbacks::control) == 1,
          "a carrier");
  return method;
}

// The settings of one end, equal for all its sessions. What docs/wire.md forbids is turned off here.
SSL_CTX* make_context(TlsSession::End end) {
  prepare_crypto();
  const bool dialer = end == TlsSession::End::kDialer;
  SSL_CTX* const context = ::SSL_CTX_new(dialer ? ::TLS_client_method() : ::TLS_server_method());
  require(context != nullptr && ::SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
              ::SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
              ::SSL_CTX_set_ciphersuites(context, has_aes() ? kAesFirst : kChaChaFirst) == 1 &&
              ::SSL_CTX_set_num_tickets(context, 0) == 1,
          "TLS 1.3");
  // An OpenSSL in FIPS mode may lack the first one, and refuses a list that has it.
  require(::SSL_CTX_set1_groups_list(context, "X25519:P-256") == 1 || ::SSL_CTX_set1_groups_list(context, "P-256") == 1,
          "X25519 and P-256");
  ::SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT | SSL_OP_ALLOW_NO_DHE_KEX);
  // The first suite of the acceptor; but ChaCha20 where it is the dialer's first.
  ::SSL_CTX_set_options(context, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
  ::SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  ::SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_default_read_buffer_len(context, kReadBytes);
  // The acceptor has no certificate, and the dialer would take none: without the key there is no handshake.
  // shake_hands() looks, too.
  if (dialer) {
    ::SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    ::SSL_CTX_set_psk_use_session_callback(context, TlsCallbacks::use_key);
  } else {
    ::SSL_CTX_set_psk_find_session_callback(context, TlsCallbacks::find_key);
  }
  return context;
}

// Made once in a process (a millisecond), never changed after, and never freed: sessions of threads that still run at
// exit use them.
SSL_CTX* context_of(TlsSession::End end) {
  static SSL_CTX* const dialer = make_context(TlsSession::End::kDialer);
  static SSL_CTX* const acceptor = make_context(TlsSession::End::kAcceptor);
  return end == TlsSession::End::kDialer ? dialer : acceptor;
}

BIO_METHOD* carrier_method() {
  static BIO_METHOD* const method = make_method();
  return method;
}

}  // namespace

void TlsSession::Free::operator()(ssl_st* ssl) const { ::SSL_free(ssl); }

// The BIO belongs to the SSL object once it is set, and refers to this session, which so is never moved.
TlsSession::TlsSession(End end, const Key& key, uint64_t key_bytes)
    : key_(key), key_bytes_(key_bytes), ssl_(::SSL_new(context_of(end))) {
  BIO* const bio = ssl_ ? ::BIO_new(carrier_method()) : nullptr;
  require(bio != nullptr, "a session");
  ::BIO_set_data(bio, this);
  ::BIO_set_init(bio, 1);
  ::SSL_set_bio(ssl_.get(), bio, bio);
  require(SSL_set_app_data(ssl_.get(), this) == 1, "a session");
  if (end == End::kDialer) {
    ::SSL_set_connect_state(ssl_.get());
  } else {
    ::SSL_set_accept_state(ssl_.get());
  }
}

TlsSession::~TlsSession() = default;

// The key is cleared once it has been used.
long TlsSession::shake_hands(Carrier& carrier) {
  if (forged_) return -1;
  in_ = out_ = &carrier;
  over_ = false;
  ::ERR_clear_error();
  const int result = ::SSL_do_handshake(ssl_.get());
  if (result != 1) return stopped(result);
  forged_ = ::SSL_session_reused(ssl_.get()) != 1;  // not by the key
  key_ = {};
  return forged_ ? -1 : 1;
}

long TlsSession::read(Carrier& carrier, void* target, size_t bytes) {
  if (forged_) return -1;
  if (bytes == 0) return 0;
  in_ = &carrier;
  out_ = nullptr;
  over_ = false;
  const size_t rest = rest_.size();
  size_t moved = 0;
  ::ERR_clear_error();
  const int result = ::SSL_read_ex(ssl_.get(), target, bytes, &moved);
  // Reading answers a record that it refuses, and a peer that asks for a new key, which no peer of ours does. A message
  // of the handshake that has come in part is refused, too: write() would read its rest first, and has no carrier for
  // it.
  if (rest_.size() != rest || ::SSL_in_init(ssl_.get()) != 0) forged_ = true;
  return result == 1 ? static_cast<long>(moved) : stopped(result);
}

// Sealed into memory first, so that several records go by one write of the carrier: a call of the system for each takes
// as long as its cipher.
long TlsSession::write(Carrier& carrier, const void* bytes, size_t size) {
  if (forged_) return -1;
  if (size == 0) return 0;
  over_ = false;
  if (held_ == 0) {
    if (written_ >= key_bytes_) replace_key();
    seal(bytes, std::min(size, kBatchBytes));
  }
  if (!flush(carrier)) return over_ ? -1 : 0;
  return static_cast<long>(std::exchange(held_, 0));
}

// OpenSSL writes into rest_, which takes everything: the call never stops half-way.
void TlsSession::seal(const void* bytes, size_t size) {
  in_ = out_ = nullptr;
  size_t moved = 0;
  ::ERR_clear_error();
  require(::SSL_write_ex(ssl_.get(), bytes, size, &moved) == 1 && moved == size, "to seal records");
  held_ = size;
  const size_t records = (size + kRecordBytes - 1) / kRecordBytes;
  written_ += std::max(size, records * kKeyBytesOfRecord);
}

// Anything but a want of more bytes is a record that does not verify, or a message that TLS 1.3 does not allow.
long TlsSession::stopped(int result) {
  const int why = ::SSL_get_error(ssl_.get(), result);
  ::ERR_clear_error();  // the program may have OpenSSL's queue of this thread in common with this library
  if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) forged_ = true;
  return forged_ || over_ ? -1 : 0;
}

// Into memory, so that the session is never in the middle of it: else two peers that change their keys at once, each
// with a full carrier, would not read either.
void TlsSession::replace_key() {
  in_ = out_ = nullptr;
  ::ERR_clear_error();
  require(::SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1 && ::SSL_do_handshake(ssl_.get()) == 1,
          "a new key");
  written_ = 0;
}

// What the carrier has taken is not erased one write at a time, since that would move the rest.
bool TlsSession::flush(Carrier& carrier) {
  while (taken_ < rest_.size()) {
    const long moved = carrier.write(rest_.data() + taken_, rest_.size() - taken_);
    over_ = moved < 0;
    if (moved <= 0) return false;
    taken_ += static_cast<size_t>(moved);
  }
  rest_.clear();
  taken_ = 0;
  return true;
}

bool TlsSession::between_records() const {
  // "RH": the next record's header is read, else its body.
  return ::SSL_has_pending(ssl_.get()) == 0 && std::string_view(::SSL_rstate_string(ssl_.get())) == "RH";
}

// Keeps OpenSSL's buffers between calls: some 64 KiB a session.
void TlsSession::read_ahead() {
  ::SSL_set_read_ahead(ssl_.get(), 1);
  ::SSL_clear_mode(ssl_.get(), SSL_MODE_RELEASE_BUFFERS);
}

}  // namespace rondo
