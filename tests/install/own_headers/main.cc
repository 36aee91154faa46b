// A program with headers of its own under names that the library's sources have, too, before and behind the library's.
#include "kernels/dtype.h"

#include <rondo/communicator.h>

#include "ring/base/error.h"

int main() {
  auto ranks = rondo::Communicator::inproc(1);
  int value = kOwnDtype + kOwnError;
  ranks[0].all_reduce(&value, &value, 1, rondo::DType::kInt32);
  return value == 3 ? 0 : 1;
}
