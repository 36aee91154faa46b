"""A library that programs of one MPI's ABI load in its place: the core and the calls, compiled against that ABI's header."""

load("//tools/bazel:rondo.bzl", "RONDO_COPTS")

def _made(face, what, out):
    native.genrule(
        name = "{}_{}_text".format(face, what),
        srcs = native.glob(["table/*"], exclude = ["table/*.py"]),
        outs = [out],
        cmd = "python3 $(location table/generate.py) {} $$(dirname $(location table/functions.txt)) {} >$@".format(face, what),
        tools = ["table/generate.py"],
    )

def mpi_face(face, library):
    """Makes `library`, a shared library that shows the calls of MPI and nothing else, and FACE_header, its mpi.h.

    Args:
      face: which of generate.py's
      library: the file's name, which is its soname
    """
    _made(face, "header", face + "/mpi.h")
    _made(face, "stubs", face + "/stubs.c")
    _made(face, "symbols", face + "/symbols.map")
    _made(face, "aliases", face + "/aliases.ld")
    native.cc_library(
        name = face,
        hdrs = [face + "/mpi.h"],
        includes = [face],
        visibility = ["//tests/mpi:__pkg__"],
    )
    native.cc_library(
        name = face + "_stubs",
        srcs = [face + "/stubs.c"],
        linkstatic = True,
        tags = ["manual"],  # nothing is linked with its objects but the library below
        alwayslink = True,
    )
    native.cc_library(
        name = face + "_calls",
        srcs = native.glob([
            "calls/*.cc",
            "core/*.cc",
            "core/*.h",
        ]),
        copts = RONDO_COPTS + ["-fvisibility-inlines-hidden"],
        linkstatic = True,
        tags = ["manual"],
        alwayslink = True,
        deps = [
            ":" + face,
            "//ring:rondo",
        ],
    )
    native.cc_binary(
        name = library,
        additional_linker_inputs = [
            face + "/symbols.map",
            face + "/aliases.ld",
        ],
        # It carries the C++ runtime and libcrypto, so that it meets no others in the process (tools/bazel/librondo.bzl).
        linkopts = [
            "$(location {}/aliases.ld)".format(face),
            "-Wl,-soname," + library,
            "-Wl,--version-script=$(location {}/symbols.map)".format(face),
            "-Wl,-z,defs",
            "-Wl,--gc-sections",
            "-static-libgcc",
            "-Wl,-Bstatic,-lcrypto,-lstdc++,-Bdynamic",
            "-Wl,--as-needed",
            "-pthread",
        ],
        linkshared = True,
        visibility = ["//visibility:public"],
        deps = [
            ":{}_calls".format(face),
            ":{}_stubs".format(face),
        ],
    )
