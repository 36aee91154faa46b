// The C API in a C++ program, with an error, which the library throws and catches inside.
#include <rondo/rondo.h>

#include <iostream>

int main() {
  rondo_comm_t comm = nullptr;
  int rank = -1, size = -1;
  if (rondo_init(&comm) != RONDO_OK) {
    std::cerr << rondo_last_error() << "\n";
    return 1;
  }
  rondo_rank(comm, &rank);
  rondo_size(comm, &size);
  int sum = rank + 1;
  if (rondo_all_reduce(comm, &sum, nullptr, 1, RONDO_INT32, RONDO_SUM, nullptr) != RONDO_INVALID) return 1;
  if (rondo_all_reduce(comm, &sum, &sum, 1, RONDO_INT32, RONDO_SUM, nullptr) != RONDO_OK) return 1;
  std::cout << "rank " << rank << " of " << size << ": " << sum << std::endl;
  return rondo_destroy(comm);
}
