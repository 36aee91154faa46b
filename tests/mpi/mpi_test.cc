// A program of MPI, compiled against the headers of MPICH's ABI, of the standard's and of Open MPI's, runs on Rondo's
// libraries; a dead rank and MPI_Abort end as the standard and the docs say. One of another ABI is refused.

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/program.h"

namespace rondo::test {
namespace {

std::vector<std::string> launch(int ranks, const std::string& face, const std::vector<std::string>& arguments = {},
                                const std::string& program = "program") {
  std::vector<std::string> command = {"tools/rondo-run", "--mpi", "--no-prefix", "-n", std::to_string(ranks)};
  command.push_back("tests/mpi/" + program + "_" + face);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

constexpr const char* kFaces[] = {"mpich", "standard", "openmpi"};

// Behind the faces' tables of names and numbers the calls are the same: one face runs in worlds up to 4, the others in
// one of 3.
std::vector<int> worlds_of(const std::string& face, int least) {
  std::vector<int> worlds;
  for (int world = least; world <= 4; ++world) {
    if (face == kFaces[0] || world == 3) worlds.push_back(world);
  }
  return worlds;
}

// The program ends well and each rank says that it is fine. What it wrote beside.
std::string check_fine(const std::vector<std::string>& command, int ranks) {
  const std::string program = command.back();
  CAPTURE(program);
  CAPTURE(ranks);
  Program run(command);
  CHECK(run.wait(std::chrono::seconds(60)) == 0);
  CAPTURE(run.errors());
  CHECK(count_of(run.output(), " of " + std::to_string(ranks) + ": fine\n") == static_cast<size_t>(ranks));
  CHECK(count_of(run.output(), "took long") == 0);
  return run.errors();
}

TEST_CASE("every family of calls, what may come in any order, windows and files, of every face") {
  const testing::TempFolder folder;
  for (const char* program : {"program", "orders", "windows", "one_sided", "files"}) {
    const bool files = program == std::string("files");
    for (const char* face : kFaces) {
      for (const int ranks : worlds_of(face, 1)) {
        check_fine(launch(ranks, face, files ? std::vector{folder.path("file")} : std::vector<std::string>{}, program),
                   ranks);
        CHECK(std::filesystem::is_empty(folder.path()));
      }
    }
  }
}

// The ranks of one host do not share memory.
std::vector<std::string> apart(std::vector<std::string> command) {
  command.insert(command.begin(), {"env", "RONDO_TRANSPORT=tcp"});
  return command;
}

TEST_CASE("windows of ranks that share no memory, as those of several hosts") {
  for (const char* face : kFaces) {
    for (const int ranks : worlds_of(face, 2)) {
      check_fine(apart(launch(ranks, face, {"apart"}, "windows")), ranks);
      check_fine(apart(launch(ranks, face, {std::to_string(ranks)}, "one_sided")), ranks);
    }
  }
}

TEST_CASE("a rank that ends is told to those that wait for it in a window") {
  for (const std::string how : {"die-lock", "die-lock-all", "die-start", "die-fence", "die-put"}) {
    CAPTURE(how);
    const std::vector<std::string> command = launch(3, "mpich", {how}, "windows");
    for (const auto& one : {apart(command), command}) {
      Program run(one);
      CHECK(run.wait(std::chrono::seconds(30)) == 0);
      CHECK(run.output() == "class 101\nclass 101\n");  // MPIX_ERR_PROC_FAILED of MPICH's ABI
    }
  }
}

TEST_CASE("a file that is closed after a rank's death leaves nothing behind") {
  const testing::TempFolder folder;
  Program run(launch(3, "mpich", {folder.path("file"), "die"}, "files"));
  CHECK(run.wait(std::chrono::seconds(60)) == 0);
  CAPTURE(run.errors());
  CHECK(count_of(run.output(), " of 3: fine\n") == 2);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("calls with mistakes end in an error, and the program goes on") {
  for (const char* face : kFaces) {
    for (const int ranks : {1, 2}) {
      const size_t warnings = count_of(check_fine(launch(ranks, face, {}, "mistakes"), ranks), "own op m");
      CHECK((warnings >= 1) == (ranks > 1));
      CHECK(warnings <= static_cast<size_t>(ranks));  // once each
    }
  }
}

TEST_CASE("ranks that differ in the op alone: RONDO_MPI_STRICT makes it the error that it is elsewhere") {
  std::vector<std::string> command = launch(2, "mpich", {}, "mistakes");
  command.insert(command.begin(), {"env", "RONDO_MPI_STRICT=1"});
  Program run(command);
  CHECK(run.wait(std::chrono::seconds(60)) != 0);
  CHECK(run.errors().find("ranks disagree about collective call") != std::string::npos);
  CHECK(run.errors().find("float64, max") != std::string::npos);
  CHECK(run.errors().find("float64, min") != std::string::npos);
}

TEST_CASE("a program that wants Open MPI's library of C++ for its names alone starts") {
  check_fine({"tools/rondo-run", "--mpi", "--no-prefix", "-n", "2", "tests/mpi/cxx_program"}, 2);
}

TEST_CASE("two of the libraries in one process are two worlds") {
  for (const int ranks : {1, 2}) {
    check_fine({"tools/rondo-run", "--mpi", "--no-prefix", "-n", std::to_string(ranks), "tests/mpi/two_faces"}, ranks);
  }
}

TEST_CASE("the engine's library has no name that a process may have, and a library without it says so") {
  Program names({"nm", "-D", "--defined-only", "--format=just-symbols", "mpi/librondo_mpi.so"});
  CHECK(names.wait(std::chrono::seconds(60)) == 0);
  CHECK(count_of(names.output(), "rondo_mpi_") == 4);
  CHECK(count_of(names.output(), "\n") - count_of(names.output(), "_ZSt") == 4);  // libstdc++ does not hide all
  const testing::TempFolder folder;
  std::filesystem::copy_file("mpi/libmpi.so.12", folder.path("libmpi.so.12"));
  Program alone({"env", "LD_LIBRARY_PATH=" + folder.path(), "tests/mpi/program_mpich"});
  CHECK(alone.wait(std::chrono::seconds(60)) == 127);
  CHECK(alone.errors().find("librondo_mpi.so: cannot open shared object file") != std::string::npos);
}

TEST_CASE("MPI_Abort ends the job with its code, or with 1 where the system would keep none of it") {
  for (const int code : {7, 256, 0}) {
    CAPTURE(code);
    Program run(launch(2, "mpich", {"abort", std::to_string(code)}));
    CHECK(run.wait(std::chrono::seconds(60)) == (code == 7 ? 7 : 1));
    CHECK(run.errors().find("called MPI_Abort with code " + std::to_string(code) + "\n") != std::string::npos);
  }
}

TEST_CASE("the rank that refuses a call of all ends the job, and says why") {
  Program run(launch(4, "mpich", {"refuse"}));
  CHECK(run.wait(std::chrono::seconds(60)) == 11);  // MPI_ERR_DIMS of MPICH's ABI
  CHECK(run.errors().find("rank 0 on ") != std::string::npos);
  CHECK(run.errors().find("MPI_Cart_create: the dimensions have more places than") != std::string::npos);
}

TEST_CASE("a rank that ends is told to the others") {
  Program fatal(launch(2, "mpich", {"die"}));
  CHECK(fatal.wait(std::chrono::seconds(60)) != 0);
  CHECK(fatal.errors().find("MPI_Barrier: ") != std::string::npos);
  CHECK(fatal.errors().find("rank 1") != std::string::npos);
  Program returned(launch(2, "mpich", {"die-return"}));
  CHECK(returned.wait(std::chrono::seconds(60)) == 0);
  CHECK(returned.output() == "class 101\n");  // MPIX_ERR_PROC_FAILED of MPICH's ABI
}

TEST_CASE("a program of User Level Failure Mitigation goes on without a rank that was killed") {
  for (const char* face : {"mpich", "openmpi"}) {
    for (const char* when : {"after", "before"}) {
      CAPTURE(face);
      std::vector<std::string> command = {"tools/rondo-run", "--mpi", "--no-prefix", "-n", "3", "--elastic", "2"};
      command.push_back(std::string("tests/mpi/recovery_") + face);
      if (when == std::string("before")) command.push_back(when);
      check_fine(command, 2);
    }
  }
}

std::string doctor(const std::string& program) {
  Program run({"tools/doctor/rondo-doctor", "--mpi", program});
  run.wait(std::chrono::seconds(60));
  return run.output();
}

TEST_CASE("a job that no rank has joined has failed, also behind a shell") {
  const std::string program = "exec tests/mpi/program_mpich";
  Program joined({"tools/rondo-run", "--mpi", "-n", "2", "sh", "-c", program});
  CHECK(joined.wait(std::chrono::seconds(60)) == 0);
  Program lone({"tools/rondo-run", "--mpi", "-n", "2", "sh", "-c", "unset LD_LIBRARY_PATH; true"});
  CHECK(lone.wait(std::chrono::seconds(60)) == 1);
  CHECK(lone.errors().find("none had joined the job") != std::string::npos);
  Program alone({"tools/rondo-run", "--mpi", "-n", "1", "true"});
  CHECK(alone.wait(std::chrono::seconds(60)) == 0);
}

TEST_CASE("which library a program wants") {
  CHECK(doctor("tests/mpi/program_openmpi").find("wants libmpi.so.40: ") != std::string::npos);
  CHECK(doctor("tests/mpi/program_standard").find("mpi/libmpi_abi.so.1 serves it") != std::string::npos);
  CHECK(doctor("tests/mpi/program_old").find("Rondo has no libmpi.so.20: it stands in for ") != std::string::npos);
  CHECK(doctor("sh").find("wants no library of MPI") != std::string::npos);
  CHECK(doctor("no-such-program").find("there is no program and no module of Python") != std::string::npos);
  Program refused(launch(2, "old"));
  CHECK(refused.wait(std::chrono::seconds(60)) == 2);
  CHECK(refused.errors().find("program_old wants libmpi.so.20. Rondo has no libmpi.so.20") != std::string::npos);
}

}  // namespace
}  // namespace rondo::test
