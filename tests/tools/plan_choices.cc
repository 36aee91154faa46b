// plan_choices: prints which algorithm the cost model chooses for which size.

#include <cstdio>

#include "tests/tools/choices.h"

int main() {
  std::fputs(rondo::choices().c_str(), stdout);
  return 0;
}
