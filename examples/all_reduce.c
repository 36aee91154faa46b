/* The first program in C: every rank contributes a vector, and gets the sum of all of them.
 *   rondo-run -n 4 bazel-bin/examples/all_reduce_c */
#include <stdio.h>
#include <stdlib.h>

#include <rondo/rondo.h>

static void require(rondo_result_t result) {
  if (result == RONDO_OK) return;
  fprintf(stderr, "%s: %s\n", rondo_result_name(result), rondo_last_error());
  exit(1);
}

int main(void) {
  enum { kCount = 1 << 20 };
  rondo_comm_t group;
  require(rondo_init(&group));

  int rank, size;
  require(rondo_rank(group, &rank));
  require(rondo_size(group, &size));

  float* values = malloc(kCount * sizeof(float));
  if (values == NULL) return 1;
  for (int i = 0; i < kCount; ++i) values[i] = (float)(rank + 1);
  require(rondo_all_reduce(group, values, values, kCount, RONDO_FLOAT32, RONDO_SUM, NULL));

  const float expected = (float)(size * (size + 1)) / 2; /* 1 + 2 + ... + size */
  for (int i = 0; i < kCount; ++i) {
    if (values[i] != expected) {
      fprintf(stderr, "rank %d: %g instead of %g\n", rank, (double)values[i], (double)expected);
      return 1;
    }
  }
  printf("rank %d of %d: every sum is %g\n", rank, size, (double)expected);
  free(values);
  require(rondo_destroy(group));
  return 0;
}
