"""Makes a face of the tables: the header that programs (and mpi/core, mpi/calls) include, the calls that are not
supported, and what the linker needs.

    generate.py FACE TABLES {header|stubs|symbols|aliases}     to standard output

FACE: mpich, standard, mpitrampoline, openmpi. TABLES: the folder of functions.txt, constants.txt and FACE.h.
"""

import pathlib
import re
import sys

COLUMN = {"mpich": 0, "standard": 1, "mpitrampoline": 1, "openmpi": 2}
KINDS = {"COUNT": ("int", "MPI_Count"), "DISPL": ("int", "MPI_Aint"), "ADISPL": ("MPI_Aint", "MPI_Count")}


def full(name):
    """X_NAME: MPIX_NAME, which is of MPICH's and Open MPI's extensions, and not in MPItrampoline's ABI."""
    return "MPI" + (name if name.startswith("X_") else "_" + name)


def lines(path):
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def functions(tables):
    """[(type, name, parameters)] of those that are implemented, and the names of the others."""
    table = lines(tables / "functions.txt")
    split = table.index("unsupported")
    made = []
    for line in table[:split]:
        kind, name, parameters = re.fullmatch(r"(?:(\S+) )?(\w+)\((.*)\)", line).groups()
        for large, suffix in ((0, ""), (1, "_c")):
            form = re.sub(r"\b(COUNT|DISPL|ADISPL)\b", lambda match: KINDS[match[1]][large], parameters)
            if large and name == "Op_create":
                form = form.replace("MPI_User_function", "MPI_User_function_c")
            elif large and form == parameters:
                continue
            elif not large and name.endswith("_c"):
                pass
            made.append((kind or "int", name + suffix, form))
    return made, " ".join(table[split + 1:]).split()


def constants(tables, column):
    """[(C type, name, value)]"""
    kind, made = "int", []
    for line in lines(tables / "constants.txt"):
        if line.startswith("["):
            kind = line[1:-1]
            continue
        for entry in line.split(" | "):
            name, *values = entry.split()
            if values[column] != "-":
                made.append((kind, name, values[column]))
    return made


def objects(face, tables):
    """The names of the objects whose addresses are Open MPI's predefined handles."""
    values = (value for _, _, value in constants(tables, COLUMN[face]))
    return sorted({value for value in values if value.startswith("ompi_")})


def header(face, tables):
    made, unsupported = functions(tables)
    prefix = "MPIABI_" if face == "mpitrampoline" else "MPI_"
    out = ["#ifndef RONDO_MPI_H", "#define RONDO_MPI_H", f"#define RONDO_MPI_FACE_{face.upper()} 1"]
    if prefix != "MPI_":
        out += [f"#define MPI_{name} {prefix}{name}" for _, name, _ in made if not name.startswith("X_")]
    out += ["#ifdef __cplusplus", 'extern "C" {', "#endif", "#pragma GCC visibility push(default)"]
    out.append((tables / f"{face}.h").read_text())
    out += [f"extern char {value}[];" for value in objects(face, tables)]
    for kind, name, value in constants(tables, COLUMN[face]):
        out.append(f"#define MPI_{name} " + (f"({value})" if kind == "int" else f"(({kind})({value}))"))
    out.append((tables / "callbacks.h").read_text())
    out += [f"{kind} {full(name)}({parameters});" for kind, name, parameters in made]
    out += [f"{kind} P{full(name)}({parameters});" for kind, name, parameters in made if prefix == "MPI_"]
    out += ["#pragma GCC visibility pop", "#ifdef __cplusplus", "}", "#endif", "#endif"]
    return out


def stubs(face, tables):
    prefix = "MPIABI_" if face == "mpitrampoline" else "MPI_"
    out = ["#pragma GCC visibility push(default)", "int rondo_mpi_unsupported(const char* call);"]
    out += [f'int {prefix}{name}() {{ return rondo_mpi_unsupported("MPI_{name}"); }}' for name in functions(tables)[1]]
    # A program may have copies of these, of its own size: no larger than it expects, and referred to by name alone.
    out += [f"char {name}[16] __attribute__((aligned(16)));" for name in objects(face, tables)]
    if face == "openmpi":
        for owner in ("", "COMM_", "TYPE_", "WIN_"):
            copy = "(void* of, int keyval, void* state, void* in, void* out, int* flag)"
            out.append(f"int OMPI_C_MPI_{owner}NULL_COPY_FN{copy} {{ *flag = 0; return 0; }}")
            out.append(f"int OMPI_C_MPI_{owner}DUP_FN{copy} {{ *(void**)out = in; *flag = 1; return 0; }}")
            out.append(f"int OMPI_C_MPI_{owner}NULL_DELETE_FN(void* of, int keyval, void* value, void* state) {{ return 0; }}")
    if face == "mpitrampoline":  # which reads constants from the library
        for kind, name, value in constants(tables, COLUMN[face]):
            kind = {"int": "int", "MPI_Offset": "long"}.get(kind, "void*" if "*" in kind else "unsigned long")
            out.append(f"{kind} const MPIABI_{name} = ({kind}){value};")
        for owner in ("", "COMM_", "TYPE_", "WIN_"):
            out.append(f"void* const MPIABI_{owner}DUP_FN = (void*)1;")
            out += [f"void* const MPIABI_{owner}NULL_{function}_FN = 0;" for function in ("COPY", "DELETE")]
        out += [f"void* const MPIABI_{name} = 0;" for name in ("CONVERSION_FN_NULL", "F_STATUS_IGNORE", "F_STATUSES_IGNORE")]
        for kind in ("cuda", "hip", "ze"):  # memory of a GPU that a call may take: none
            out.append(f"int MPIXABI_Query_{kind}_support() {{ return 0; }}")
        version = {"mpiabi": (2, 10, 0), "mpiwrapper": (2, 10, 0)}
        for whose, numbers in version.items():
            for part, number in zip(("major", "minor", "patch"), numbers):
                out.append(f"int const {whose}_version_{part} = {number};")
    return out


def symbols(face, tables):
    return ["{", "  global: MPI_*; PMPI_*; MPIX_*; PMPIX_*; MPIR_Dup_fn; MPIABI_*; MPIXABI_*; mpiabi_*; mpiwrapper_*; ompi_*; OMPI_*;", "  local: *;", "};"]


def aliases(face, tables):
    made, unsupported = functions(tables)
    if face == "mpitrampoline":
        return ["/* No PMPI. */"]
    return [f"P{full(name)} = {full(name)};" for name in [name for _, name, _ in made] + unsupported]


if __name__ == "__main__":
    _, given_face, folder, what = sys.argv
    print("\n".join(globals()[what](given_face, pathlib.Path(folder))))
