#include "transport/hello/secured_socket.h"

#include "transport/tcp/asio_socket.h"

namespace rondo {
namespace {

// Carries TLS records over a socket, and says in words how it failed.
struct SocketCarrier final : TlsSession::Carrier {
  SocketCarrier(int its_socket, std::string& its_why, int* its_number)
      : socket(its_socket), why(its_why), number(its_number) {}

  long read(void* target, size_t bytes) override {
    return receive_some(socket, static_cast<char*>(target), bytes, why, number);
  }
  // Each side's messages are short, and go into an empty buffer: all of them fit at once.
  long write(const void* bytes, size_t size) override {
    const long moved = send_some(socket, {static_cast<const char*>(bytes), size}, why);
    if (moved == 0) why = "the socket took no byte";
    return moved > 0 ? moved : -1;
  }

  int socket;
  std::string& why;
  int* number;
};

}  // namespace

long shake_hands(TlsSession& session, int socket, std::string& why, int* number) {
  SocketCarrier carrier(socket, why, number);
  const long done = session.shake_hands(carrier);
  if (session.forged()) why = "its TLS handshake was changed on its way";
  return done;
}

}  // namespace rondo
