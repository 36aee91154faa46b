// Slurm's lists of nodes and tasks: refused as kInvalid, or understood within their bounds.
#include "transport/rendezvous/slurm.h"

#include "rondo/error.h"
#include "tests/fuzz/target.h"

namespace rondo::fuzz {
namespace {

constexpr size_t kMaxNodes = 65'536;
constexpr size_t kMaxNameBytes = 255;

template <typename Call>
void refused_as_invalid(Call call) {
  try {
    call();
  } catch (const Exception& refusal) {
    RONDO_CHECK(refusal.code() == ErrorCode::kInvalid, "a list that is wrong is INVALID");
  }
}

}  // namespace

std::vector<std::string> seeds() {
  return {"n1",       "n[1-3,07],gpu-[1-2]", "rack[1-2]n[01-12]", "a,b,c", "2(x3),1", "1", "4,4,4(x2)",
          "n[1-999]", "n[1-65536,1-65536]"};
}

void try_input(std::string_view input) {
  refused_as_invalid([&] {
    const std::string name = first_node(input);
    RONDO_CHECK(!name.empty() && name.size() <= kMaxNameBytes, "a name has a bound");
  });
  refused_as_invalid([&] {
    const std::vector<int> tasks = expand_tasks_per_node(input);
    RONDO_CHECK(!tasks.empty() && tasks.size() <= kMaxNodes, "as many nodes as Slurm has");
    for (const int count : tasks) RONDO_CHECK(count >= 0 && count <= static_cast<int>(kMaxNodes), "tasks of a node");
  });
}

}  // namespace rondo::fuzz
