"""Headers of an installed system package as a Bazel target @NAME//:NAME."""

_BUILD = """
cc_library(
    name = "{name}",
    hdrs = glob({globs}),
    defines = {defines},
    includes = ["include"],
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
"""

def _system_package_impl(ctx):
    folder = ctx.attr.include_dir
    if ctx.attr.ask:
        folder = ctx.execute(["python3", "-c", ctx.attr.ask]).stdout.strip() or folder
    root = ctx.path(folder)
    if not ctx.path(folder + "/" + ctx.attr.header).exists:
        fail(("\n\nRondo needs {header}, which is not under {root}.\n" +
              "It comes with Debian's package {package}: apt-get install {package}\n" +
              "(tools/test.sh and tools/bench.sh install it by themselves.)\n").format(
            header = ctx.attr.header,
            root = ctx.attr.include_dir,
            package = ctx.attr.package,
        ))
    for header in ctx.attr.headers:
        ctx.symlink(folder + "/" + header, "include/" + header if header != "." else "include")
    ctx.file("BUILD.bazel", _BUILD.format(
        name = ctx.name,
        globs = repr(["include/" + h for h in ctx.attr.headers if h != "."] +
                     ["include/" + ("" if h == "." else h + "/") + "**" for h in ctx.attr.headers]),
        defines = repr(ctx.attr.defines),
        linkopts = repr(ctx.attr.linkopts),
    ))

system_package = repository_rule(
    implementation = _system_package_impl,
    local = True,
    attrs = {
        "package": attr.string(mandatory = True, doc = "Debian's package, named when a header is missing"),
        "header": attr.string(mandatory = True, doc = "the header whose presence is checked"),
        "headers": attr.string_list(mandatory = True, doc = "files and folders under include_dir to expose; \".\": all of it"),
        "ask": attr.string(doc = "what Python prints to say the include_dir"),
        "include_dir": attr.string(default = "/usr/include"),
        "defines": attr.string_list(),
        "linkopts": attr.string_list(),
    },
)
