#include "tests/api/plain_c.h"

#include <string.h>

const char* plain_c_sum(rondo_comm_t comm) {
  rondo_options_t options = RONDO_OPTIONS_INIT;
  int rank = -1, size = -1, i;
  int32_t numbers[100];
  options.algorithm = "ring";
  options.timeout_ms = 60000;
  if (options.struct_bytes != sizeof(rondo_options_t) || options.scalar != 1.0) return "RONDO_OPTIONS_INIT";
  if (rondo_rank(comm, &rank) != RONDO_OK || rondo_size(comm, &size) != RONDO_OK) return rondo_last_error();
  for (i = 0; i < 100; ++i) numbers[i] = rank + 1;
  if (rondo_all_reduce(comm, numbers, numbers, 100, RONDO_INT32, RONDO_SUM, &options) != RONDO_OK) {
    return rondo_last_error();
  }
  for (i = 0; i < 100; ++i) {
    if (numbers[i] != size * (size + 1) / 2) return "wrong sum";
  }
  return NULL;
}
