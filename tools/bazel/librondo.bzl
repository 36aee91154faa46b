"""librondo.so, librondo_c.so and librondo.a, each made of all objects of a cc_library and of what it depends on."""

load("@openssl//:static.bzl", "STATIC_NEEDS")
load("//tools/bazel:archive.bzl", "whole_archive")
load("//tools/bazel:version.bzl", "RONDO_C_SONAME", "RONDO_SONAME")

# The C++ runtime and OpenSSL inside a library, so that it meets no others in the process. What libcrypto.a needs is
# shared, since Debian's libz.a is not position-independent. Bazel links by gcc and names libstdc++ itself, last: by then
# nothing needs it. A shared libssl that is named as well refers to names of libcrypto, which the linker would show for it.
STATIC_RUNTIME = [
    "-static-libgcc",
    "-Wl,-Bstatic,-lssl,-lcrypto,-lstdc++,-Bdynamic",
    "-Wl,--exclude-libs,libssl.a:libcrypto.a",
    "-Wl,--as-needed",
] + STATIC_NEEDS

def rondo_shared_library(name, library, linkopts = [], **kwargs):
    """Makes three of one library.

    Their sonames are those of version.bzl. NAME.so shows what tools/bazel/librondo.map lists. NAME_c.so, for bindings, shows
    the C API alone and carries the C++ runtime and OpenSSL, so that it meets no others in the process. whole/NAME.a.

    Args:
      name: "librondo"
      library: the cc_library that holds the API
      linkopts: system libraries that the objects need
      **kwargs: visibility, tags
    """
    archive = "whole/{}.a".format(name)  # NAME.a is the cc_library's own, of its direct sources only
    whole_archive(
        name = name + "_archive",
        library = library,
        out = archive,
        hides = True,
        **kwargs
    )
    shared_library(name + ".so", archive, "//tools/bazel:librondo.map", RONDO_SONAME, linkopts + ["-lssl", "-lcrypto"], **kwargs)
    shared_library(name + "_c.so", archive, "//tools/bazel:librondo_c.map", RONDO_C_SONAME, STATIC_RUNTIME + linkopts, **kwargs)

def shared_library(name, archive, symbols, soname, linkopts, **kwargs):
    """Makes a library of all that is in `archive`, which shows what the file `symbols` lists."""
    native.cc_binary(
        name = name,
        linkshared = True,
        linkopts = [
            # Nothing refers to the API from inside: without this the linker would take no object at all.
            "-Wl,--whole-archive",
            "$(location {})".format(archive),
            "-Wl,--no-whole-archive",
            "-Wl,-soname,{}".format(soname),
            "-Wl,-z,defs",  # what is missing is found here, not where it is loaded
            "-Wl,--version-script=$(location {})".format(symbols),
            "-pthread",
        ] + linkopts,
        additional_linker_inputs = [
            archive,
            symbols,
        ],
        **kwargs
    )
