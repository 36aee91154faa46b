/* A C program of somebody else's, against the installed header and library. */
#include <rondo/rondo.h>
#include <stdio.h>

#define COUNT 1000

static int fail(void) {
  fprintf(stderr, "%s\n", rondo_last_error());
  return 1;
}

int main(void) {
  rondo_comm_t group;
  float values[COUNT];
  int rank, size;
  if (rondo_init(&group) || rondo_rank(group, &rank) || rondo_size(group, &size)) return fail();
  for (int i = 0; i < COUNT; ++i) values[i] = (float)(rank + 1);
  if (rondo_all_reduce(group, values, values, COUNT, RONDO_FLOAT32, RONDO_SUM, NULL)) return fail();
  for (int i = 0; i < COUNT; ++i) {
    if (values[i] != (float)(size * (size + 1)) / 2) return 1;
  }
  printf("C rank %d of %d: %g\n", rank, size, (double)values[0]);
  return rondo_destroy(group) ? fail() : 0;
}
