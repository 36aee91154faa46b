// What a PMI-1 server answers: the client takes it or refuses it as kBootstrap, and never waits for more.
#include "transport/rendezvous/pmi.h"

#include <sys/socket.h>

#include <chrono>

#include "ring/base/descriptor.h"
#include "rondo/error.h"
#include "tests/fuzz/target.h"

namespace rondo::fuzz {
namespace {

// A socket takes it without a reader.
constexpr size_t kMostBytes = 60'000;
// 64 parts of a line each.
constexpr size_t kMostValueBytes = size_t{64} * 65 * 1024 / 2;

void use(PmiClient& client) {
  const Store::Deadline deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  client.init(deadline);
  RONDO_CHECK(!client.name_space().empty(), "an introduced client has a name space");
  client.put("card", "some bytes", deadline);
  client.barrier(deadline);
  RONDO_CHECK(client.get("card", deadline).size() <= kMostValueBytes, "a value has a bound");
}

}  // namespace

std::vector<std::string> seeds() {
  const std::string start =
      "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
      "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"
      "cmd=my_kvsname kvsname=kvs_1\n";
  const std::string met = start + "cmd=put_result rc=0 msg=success\ncmd=barrier_out\n";
  return {start, met + "cmd=get_result rc=0 msg=success value=01.736f6d65\ncmd=finalize_ack\n",
          met + "cmd=get_result rc=0 value=02.73\ncmd=get_result rc=0 value=6f\n",
          start + "cmd=put_result rc=-1 msg=no room for it\n"};
}

void try_input(std::string_view input) {
  int ends[2];
  RONDO_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "a pair of sockets");
  const Descriptor server(ends[0]), here(ends[1]);
  input = input.substr(0, kMostBytes);
  RONDO_CHECK(::send(server.get(), input.data(), input.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(input.size()),
              "the socket takes it");
  ::shutdown(server.get(), SHUT_WR);
  PmiClient client(here.get());
  try {
    use(client);
  } catch (const Exception& refusal) {
    RONDO_CHECK(refusal.code() == ErrorCode::kBootstrap, "a server that errs is BOOTSTRAP");
  }
}

}  // namespace rondo::fuzz
