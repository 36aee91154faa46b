// An exception thrown inside the library is caught by its type outside: exit code 0.
#include <rondo/communicator.h>

int main() {
  try {
    rondo::JoinOptions options;
    options.rank = 2;
    options.world = 2;
    options.rendezvous = "tcp://127.0.0.1:1";
    rondo::Communicator::join(options);
  } catch (const rondo::Exception& error) {
    return error.code() == rondo::ErrorCode::kInvalid ? 0 : 1;
  }
  return 1;
}
