"""The libraries of MPI: one that has the engine and, for each face, the core and the calls, compiled against that ABI's
header; and a library of each face, which programs load and which jumps there."""

load("//tools/bazel:librondo.bzl", "STATIC_RUNTIME")
load("//tools/bazel:rondo.bzl", "RONDO_COPTS")

_ENGINE = "librondo_mpi.so"

def _made(face, what, out):
    native.genrule(
        name = "{}_{}_text".format(face, what),
        srcs = native.glob(["table/*"], exclude = ["table/*.py"]),
        outs = [out],
        cmd = "python3 $(location table/generate.py) {} $$(dirname $(location table/functions.txt)) {} >$@".format(face, what),
        tools = ["table/generate.py"],
    )

def mpi_libraries(faces):
    """Makes librondo_mpi.so and the libraries of the faces, and "libraries", which is all of them.

    Args:
      faces: by the names that generate.py has for them, the files' names, which are their sonames
    """
    for face, names in faces.items():
        _face(face, names)
    native.cc_library(
        name = "calls",
        tags = ["manual"],
        visibility = ["//python/wheel:__pkg__"],
        deps = [":{}_calls".format(face) for face in faces],
    )
    native.cc_binary(
        name = _ENGINE,
        additional_linker_inputs = ["librondo_mpi.map"],
        linkopts = [
            "-Wl,-soname," + _ENGINE,
            "-Wl,--version-script=$(location librondo_mpi.map)",
            "-Wl,-z,defs",
            "-Wl,--gc-sections",
            "-pthread",
        ] + STATIC_RUNTIME,
        linkshared = True,
        deps = [":calls"],
    )
    native.filegroup(
        name = "libraries",
        srcs = [_ENGINE, "libmpi_cxx.so.40"] + [name for names in faces.values() for name in names],
        visibility = ["//visibility:public"],
    )

def _face(face, names):
    """Makes libraries of these names, FACE_calls, which is what they jump to, and FACE, their mpi.h."""
    _made(face, "header", face + "/mpi.h")
    _made(face, "entries", face + "/entries.cc")
    _made(face, "library", face + "/library.c")
    native.cc_library(
        name = face,
        hdrs = [face + "/mpi.h"],
        includes = [face],
        visibility = ["//tests/mpi:__pkg__"],
    )
    native.cc_library(
        name = face + "_calls",
        srcs = [face + "/entries.cc"] + native.glob([
            "calls/*.cc",
            "core/*.cc",
            "core/*.h",
        ]),
        copts = RONDO_COPTS + ["-DRONDO_MPI_INSIDE"],
        linkstatic = True,
        tags = ["manual"],  # nothing is linked with its objects but librondo_mpi.so, and tests of a part
        visibility = ["//tests/mpi:__pkg__"],
        alwayslink = True,
        deps = [
            ":" + face,
            "//ring:rondo",
        ],
    )
    for library in names:
        native.cc_binary(
            name = library,
            srcs = [face + "/library.c"],
            additional_linker_inputs = [_ENGINE],
            # The engine lies beside it, and is not another one that LD_LIBRARY_PATH may have.
            linkopts = [
                "$(location {})".format(_ENGINE),
                "-Wl,-rpath,$$ORIGIN,--disable-new-dtags",
                "-Wl,-soname," + library,
                "-Wl,-z,defs,-z,nodelete",  # threads run in the engine
                "-Wl,--as-needed",
            ],
            linkshared = True,
            visibility = ["//visibility:public"],
        )
