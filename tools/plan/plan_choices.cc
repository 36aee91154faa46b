// plan_choices: prints which algorithm is chosen for which size; by the default cost model, or by one that
// rondo-bench --calibrate wrote.

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "rondo/error.h"
#include "tools/plan/choices.h"

int main(int argc, char** argv) {
  if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
    std::fputs("usage: plan_choices [COST-MODEL-FILE]\n", stderr);
    return 2;
  }
  std::string text;
  if (argc == 2) {
    std::ifstream file(argv[1], std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), {});
    if (!file.is_open() || file.bad()) {
      std::fprintf(stderr, "plan_choices: cannot read %s\n", argv[1]);
      return 2;
    }
  }
  try {
    std::fputs(rondo::choices(rondo::CostModel::parse(text)).c_str(), stdout);
  } catch (const rondo::Exception& e) {
    std::fprintf(stderr, "plan_choices: %s\n", e.what());
    return 2;
  }
  return 0;
}
