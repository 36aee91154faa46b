#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "ring/base/log.h"
#include "transport/socket.h"
#include "transport/zerocopy_ledger.h"

namespace rondo {

struct ZerocopyUse {
  uint32_t least_bytes = 0;  // of a write; below, and always with 0, it is copied
  bool always = false;       // wherever the kernel takes it, however small: for tests and measurements
};

// Whether it may pay on this connection: the use says so, both ends are not of one host (there the kernel copies
// anyway, when the other end receives), they are not far apart (memory is held for a round trip, and a link holds a few
// slices at most), and the kernel knows MSG_ZEROCOPY, which this call then turns on (SO_ZEROCOPY).
bool enable_zerocopy(int socket, const ZerocopyUse& use, const Logger& log, const std::string& peer);

// A SocketStream whose large writes are sent from the caller's memory (MSG_ZEROCOPY): held() counts the bytes that the
// kernel has not yet notified about, which it does when the peer has acknowledged them. The end of every such write is
// copied: the receiver's kernel acknowledges what is less than two segments only after 40 ms, and a driver that waits
// for its memory would wait as long.
//
// Where the kernel refuses a call (ENOBUFS: its limits on pinned or option memory; EFAULT: memory that it cannot pin),
// that call copies. When it says of several sends in a row that it copied them, or refuses as many, the stream copies
// from then on, and logs it once.
//
// stop() resets the connection, so that the kernel drops what it has not sent, and waits until it has let go of what is
// on its way through the network card; for 50 ms at most, after which the card may still send what the memory has
// become, to a peer whose connection is reset.
class ZerocopySocket final : public SocketStream {
 public:
  // The socket has gone through enable_zerocopy().
  ZerocopySocket(Descriptor socket, std::string peer, const ZerocopyUse& use, const Logger& log,
                 std::shared_ptr<void> watch = nullptr);
  ~ZerocopySocket() override;

  long write(const iovec* parts, int count) override;
  uint64_t held() const override { return ledger_.empty() ? 0 : position_ - ledger_.oldest(); }
  void reap() override;
  void stop() override;

 private:
  long write_from_memory(const iovec* parts, int count, size_t bytes);
  bool take_notification();
  void give_up(const char* why);

  const pid_t pid_ = ::getpid();
  const ZerocopyUse use_;
  const Logger log_;
  const size_t tail_;  // bytes at the end of a write that are copied
  bool in_use_ = true;
  bool stopped_ = false;
  uint64_t position_ = 0;  // bytes written
  uint32_t refused_in_a_row_ = 0;
  ZerocopyLedger ledger_;
};

}  // namespace rondo
