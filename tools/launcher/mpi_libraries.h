#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace rondo::launcher {

// A word for a shell, whatever is in it.
std::string quoted(const std::string& text);

// Rondo's libraries for programs of MPI (docs/mpi.md) lie beside this program; nullopt: they do not.
std::optional<std::filesystem::path> mpi_folder();

// The names of all libraries of MPI that a program or shared library wants, itself or by those that it wants:
// "libmpi.so.12". Empty for any other file. The dynamic linker lists them; no code of the file runs.
std::vector<std::string> wanted_mpi(const std::string& file);

// Why Rondo cannot stand in for such a library, in a sentence; "": it can.
std::string lacks_mpi(const std::string& library);

// Where the module of this name of python3 lies, a folder or a file; "": there is none, or no python3. It starts
// python3.
std::string find_module(const std::string& name);

// The file that a shell would run for this name; "": none.
std::string find_program(const std::string& name);

}  // namespace rondo::launcher
