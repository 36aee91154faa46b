/* Prints the version of the library that it runs with. */
#include <rondo/rondo.h>
#include <stdio.h>

int main(void) {
  puts(rondo_version());
  return 0;
}
