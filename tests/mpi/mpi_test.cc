// A program of MPI, compiled against the header of MPICH's ABI, runs on Rondo's library: started by rondo-run, and by
// nothing; a wrong call, a dead rank and MPI_Abort end as the standard and the docs say.

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/support/program.h"

namespace rondo::test {
namespace {

constexpr const char* kProgram = "tests/mpi/program";

Program start(int ranks, const std::vector<std::string>& arguments = {}) {
  std::vector<std::string> command = {"tools/rondo-run", "--mpi", "--no-prefix", "-n", std::to_string(ranks), kProgram};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return Program(command);
}

TEST_CASE("every family of calls") {
  for (const int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    const auto run = start(ranks);
    CHECK(const_cast<Program&>(run).wait(std::chrono::seconds(60)) == 0);
    CHECK(run.errors() == "");
    CHECK(count_of(run.output(), " of " + std::to_string(ranks) + ": fine\n") == static_cast<size_t>(ranks));
  }
}

TEST_CASE("MPI_Abort ends the job with its code") {
  auto run = start(2, {"abort"});
  CHECK(run.wait(std::chrono::seconds(60)) == 7);
  CHECK(run.errors().find("called MPI_Abort with code 7") != std::string::npos);
}

TEST_CASE("a rank that ends is told to the others") {
  auto fatal = start(2, {"die"});
  CHECK(fatal.wait(std::chrono::seconds(60)) != 0);
  CHECK(fatal.errors().find("MPI_Barrier: ") != std::string::npos);
  CHECK(fatal.errors().find("rank 1") != std::string::npos);
  auto returned = start(2, {"die-return"});
  CHECK(returned.wait(std::chrono::seconds(60)) == 0);
  CHECK(returned.output() == "class 101\n");  // MPIX_ERR_PROC_FAILED of MPICH's ABI
}

}  // namespace
}  // namespace rondo::test
