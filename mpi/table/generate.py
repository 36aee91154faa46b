"""Makes a face of the tables: the header that programs (and mpi/core, mpi/calls) include, its functions and their table in
librondo_mpi.so, and the library that programs load, which jumps there.

    generate.py FACE TABLES {header|entries|library}     to standard output

FACE: mpich, standard, mpitrampoline, openmpi. TABLES: the folder of functions.txt, constants.txt and FACE.h.
"""

import pathlib
import re
import sys
import typing
import zlib

COLUMN = {"mpich": 0, "standard": 1, "mpitrampoline": 1, "openmpi": 2}
POINTERS = ("UNWEIGHTED", "WEIGHTS_EMPTY")  # objects of MPICH's ABI
# What a call writes to, and may not be null; but for these names, which may.
HANDLES = "Comm|Group|Datatype|Op|Request|Message|Errhandler|Info|Session|Win|File"
PARAMETER = re.compile(r"(.*?) ?(\w+)[][\d]*")
WRITTEN = re.compile(rf"(?:int|char|MPI_(?:Aint|Count|Offset|Fint|{HANDLES}))\*")
MAY_BE_NULL = ("argc", "argv", "value", "pset_name", "sourceweights", "destweights", "coords")
# Whose error handler gets what a function throws: that of its first parameter of these types.
HANDLERS = {"MPI_Comm": "on", "MPI_Win": "on_win", "MPI_File": "on_file", "MPI_Session": "on_session"}
KINDS = {"COUNT": ("int", "MPI_Count"), "DISPL": ("int", "MPI_Aint"), "ADISPL": ("MPI_Aint", "MPI_Count")}


class Function(typing.NamedTuple):
    kind: str  # of what it returns; "": an int, an error code of what its code throws
    name: str
    parameters: str
    code: str  # the name of what calls/ has of it
    other: str  # another function, which it calls instead; "": none
    written: dict = {}  # of parameters that go there and come back as a larger type: {name: (type, larger type)}

    def declared(self, prefix=""):
        return f"{self.kind or 'int'} {prefix}{full(self.name)}({self.parameters})"


def full(name):
    """X_NAME: MPIX_NAME, which is of MPICH's and Open MPI's extensions, and not in MPItrampoline's ABI."""
    return "MPI" + (name if name.startswith("X_") else "_" + name)


def lines(path):
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def functions(tables):
    """The functions that are implemented, and the names of the others."""
    table = lines(tables / "functions.txt")
    split = table.index("unsupported")
    made = []
    for line in table[:split]:
        kind, name, parameters, other = re.fullmatch(r"(?:(\S+) )?(\w+)\((.*)\)(?: = (\w+))?", line).groups("")
        small, large = (
            re.sub(r"\b(COUNT|DISPL|ADISPL)\b", lambda match: KINDS[match[1]][form], parameters) for form in (0, 1)
        )
        if name == "Op_create":
            large = parameters.replace("MPI_User_function", "MPI_User_function_c")
        # Arrays would have to be copied, and a datatype remembers which form made it: these have code of their own.
        if small == large or name == "Op_create" or re.search(r"\b(?:COUNT|DISPL) \w+\[\]|\* newtype", parameters):
            made.append(Function(kind, name, small, name, other))
        else:
            written = {word: KINDS[what] for what, word in re.findall(r"\b(A?DISPL|COUNT)\* (\w+)", parameters)}
            made.append(Function(kind, name, small, name + "_c", other, written))
        if small != large:
            made.append(Function(kind, name + "_c", large, name + "_c", ""))
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


def exported(face, tables):
    """The functions that are implemented, those that are not, and what the table of the former is called: two libraries
    have a name in common only if they agree about its entries."""
    made, unsupported = functions(tables)
    names = [name for name in (each.name for each in made) if face != "mpitrampoline" or not name.startswith("X_")]
    agreed = zlib.crc32(" ".join(names + objects(face, tables)).encode())
    return names, unsupported, f"rondo_mpi_{face}_{agreed:08x}"


def header(face, tables):
    made, _ = functions(tables)
    out = ["#ifndef RONDO_MPI_H", "#define RONDO_MPI_H", f"#define RONDO_MPI_FACE_{face.upper()} 1"]
    # librondo_mpi.so has this code once for each face, under names of its own.
    out += ["#ifdef RONDO_MPI_INSIDE", f"#define rondo_mpi rondo_mpi_{face}", f"#define MPI_Status MPI_Status_{face}"]
    out += [f'#define RONDO_MPI_NAME(name) __asm__("rondo_mpi_{face}_" #name)', "#else", "#define RONDO_MPI_NAME(name)", "#endif"]
    out += ["#ifdef __cplusplus", 'extern "C" {', "#endif", (tables / f"{face}.h").read_text(), "#ifdef RONDO_MPI_INSIDE"]
    out.append("int rondo_mpi_unsupported(const char* call) RONDO_MPI_NAME(unsupported);")
    out.append("int rondo_mpi_missing(const char* call, MPI_Comm comm) RONDO_MPI_NAME(missing);")
    out.append('extern __attribute__((visibility("hidden"))) char* rondo_mpi_objects[];')
    out += [f"#define {name} rondo_mpi_objects[{place}]" for place, name in enumerate(objects(face, tables))]
    out += ["#else", *(f"extern char {name}[];" for name in objects(face, tables)), "#endif"]
    for kind, name, value in constants(tables, COLUMN[face]):
        out.append(f"#define MPI_{name} " + (f"({value})" if kind == "int" else f"(({kind})({value}))"))
    out.append((tables / "callbacks.h").read_text())
    out += [f"{each.declared()} RONDO_MPI_NAME({each.name});" for each in made]
    out += [f"{each.declared('P')};" for each in made]
    out += ["#ifdef __cplusplus", "}", "#endif", "#ifdef RONDO_MPI_INSIDE", "namespace rondo_mpi::calls {"]
    own = [each for each in made if each.code == each.name and not each.other]
    out += [f"{each.kind or 'void'} {full(each.name)}({each.parameters});" for each in own]
    return [*out, "}", "#endif", "#endif"]


def entry(of):
    """The lines of a function: it calls its code, after a look for null where it would write."""
    arguments = [(match[1], match[2]) for match in map(PARAMETER.fullmatch, of.parameters.split(", ")) if match and match[1]]
    words = [word for _, word in arguments]
    missing = [word for kind, word in arguments if WRITTEN.fullmatch(kind) and word not in MAY_BE_NULL]
    out = [f"{of.declared()} {{"]
    if missing:
        comm = next((word for kind, word in arguments if kind == "MPI_Comm"), "MPI_COMM_NULL")
        nulls = " || ".join(f"!{word}" for word in missing)
        out.append(f'  if ({nulls}) return rondo_mpi_missing("{full(of.name)}", {comm});')
    if of.other:
        return [*out, f"  return {full(of.other)}({', '.join(words)});", "}"]
    out += [f"  {large} large_{word} = *{word};" for word, (_, large) in of.written.items()]
    words = [f"&large_{word}" if word in of.written else word for word in words]
    call = f"calls::{full(of.code)}({', '.join(words)})"
    if not of.kind:
        name = full(of.code)
        where = next((f"{HANDLERS[kind]}({word}, " for kind, word in arguments if kind in HANDLERS), "run(")
        call = f'{where}"{name}", [&] {{ {call}; }})'
    if not of.written:
        return [*out, f"  return {call};", "}"]
    back = [f"  if (made == MPI_SUCCESS) *{word} = narrowed<{small}>(large_{word});" for word, (small, _) in of.written.items()]
    return [*out, f"  const int made = {call};", *back, "  return made;", "}"]


def entries(face, tables):
    """The functions, and what the library jumps to: the call of what is not supported, then they. Open MPI's has a last
    entry, for the addresses of its objects, which a program may have copies of."""
    names, _, table = exported(face, tables)
    implemented, _ = functions(tables)
    out, last = ['#include "mpi/core/errors.h"', "using namespace rondo_mpi;"], []
    out.append("template <typename Small, typename Large> static Small narrowed(Large value) {")
    out.append("  return static_cast<Small>(value) == value ? static_cast<Small>(value) : Small{MPI_UNDEFINED}; }")
    out += [line for each in implemented for line in entry(each)]
    if objects(face, tables):
        out.append(f"char* rondo_mpi_objects[{len(objects(face, tables))}];")
        last = ["rondo_mpi_objects"]
    out += ['extern "C" __attribute__((visibility("default"))) void* const ' + f"{table}[];", f"void* const {table}[] = {{"]
    return out + [f"(void*){name}," for name in ["rondo_mpi_unsupported", *map(full, names), *last]] + ["};"]


def library(face, tables):
    names, unsupported, table = exported(face, tables)
    code = [".text", ".cfi_startproc"]  # no jump has a frame
    for index, name in [*enumerate(names, 1), *((0, name) for name in unsupported)]:
        for symbol in ["MPIABI_" + name] if face == "mpitrampoline" else [full(name), "P" + full(name)]:
            code += [f".globl {symbol}", f".type {symbol}, @function", f"{symbol}:"]
        if index == 0:
            code += [".pushsection .rodata", f'1: .string \\"MPI_{name}\\"', ".popsection", "lea 1b(%rip), %rdi"]
        code += [f"mov {table}@GOTPCREL(%rip), %r11", f"jmp *{8 * index}(%r11)"]
    out = ["__asm__(", *(f'"{line}\\n"' for line in [*code, ".cfi_endproc"]), ");"]
    null_copy, dup, null_delete = (
        "(void* of, int keyval, void* state, void* in, void* out, int* flag) { *flag = 0; return 0; }",
        "(void* of, int keyval, void* state, void* in, void* out, int* flag) { *(void**)out = in; *flag = 1; return 0; }",
        "(void* of, int keyval, void* value, void* state) { return 0; }",
    )
    if face in ("mpich", "openmpi"):
        out += ["int *MPI_F_STATUS_IGNORE, *MPI_F_STATUSES_IGNORE;"]  # no Fortran
    if face == "mpich":
        # What libmpichfort.so.12, MPICH's library of Fortran, wants beside MPI's names.
        out += ["void *MPI_F08_STATUS_IGNORE, *MPI_F08_STATUSES_IGNORE;"]
        for kind in ("hip", "ze"):
            out += [f"int {p}MPIX_Query_{kind}_support(void) {{ return 0; }}" for p in ("", "P")]
        out += [f"int {p}MPIX_GPU_query_support(int kind, int* has) {{ *has = 0; return 0; }}" for p in ("", "P")]
        out.append(f"int MPIR_Dup_fn{dup}")
        out += [f"int* const MPI_{name} = (int*){value};" for _, name, value in constants(tables, 0) if name in POINTERS]
    if face == "openmpi":
        # A program may have copies of these, of its own size: no larger than it expects, and referred to by name alone.
        out += [f"char {name}[16] __attribute__((aligned(16)));" for name in objects(face, tables)]
        out += ["static char* const objects[] = {", *(f"{name}," for name in objects(face, tables)), "};"]
        out.append(f"extern void* const {table}[];")
        out.append("__attribute__((constructor)) static void hand_over(void) {")
        out.append(f"__builtin_memcpy({table}[{len(names) + 1}], objects, sizeof objects); }}")
        for owner in ("", "COMM_", "TYPE_", "WIN_"):
            out.append(f"int OMPI_C_MPI_{owner}NULL_COPY_FN{null_copy}")
            out.append(f"int OMPI_C_MPI_{owner}DUP_FN{dup}")
            out.append(f"int OMPI_C_MPI_{owner}NULL_DELETE_FN{null_delete}")
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
        out.append("void mpiwrapper_export_fortran_constants_(void) {}")  # no Fortran
        version = {"mpiabi": (2, 10, 0), "mpiwrapper": (2, 10, 0)}
        for whose, numbers in version.items():
            for part, number in zip(("major", "minor", "patch"), numbers):
                out.append(f"int const {whose}_version_{part} = {number};")
    return out


if __name__ == "__main__":
    _, given_face, folder, what = sys.argv
    print("\n".join(globals()[what](given_face, pathlib.Path(folder))))
