#pragma once

#include <memory>
#include <string>

#include "ring/base/descriptor.h"
#include "transport/byte_stream.h"

namespace rondo {

// A ByteStream over a connected, non-blocking socket, which it owns. `peer` is the other end's name in errors: "rank 3
// (host b, pid 17)". One system call a read or write; no copy.
class SocketStream final : public ByteStream {
 public:
  // watch: Doorbell::watch() of the socket, kept until before it is closed; or none.
  SocketStream(Descriptor socket, std::string peer, std::shared_ptr<void> watch = nullptr);

  long read(const iovec* parts, int count) override;
  long write(const iovec* parts, int count) override;
  const Error& error() const override { return error_; }
  bool ended() const override { return ended_; }

  int descriptor() const { return socket_.get(); }

 private:
  // Sets error(): `action` ("writing to") and what errno says. -1.
  long fail(const char* action, int number);

  Descriptor socket_;
  std::string peer_;
  Error error_;
  // The peer closed its side in good order, and all that it sent was read.
  bool ended_ = false;
  std::shared_ptr<void> watch_;  // destroyed before socket_
};

}  // namespace rondo
