"""One archive of all objects of a cc_library and of what it depends on."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _objects(library):
    objects = []
    for linker_input in library[CcInfo].linking_context.linker_inputs.to_list():
        for entry in linker_input.libraries:
            found = entry.pic_objects or entry.objects
            if not found:
                # Header-only libraries have an empty archive; a prebuilt one would be left out in silence.
                if linker_input.owner.workspace_name == "":
                    continue
                fail("no objects to archive in {}".format(linker_input.owner))
            objects += found
    return objects

def _run(ctx, tool, arguments, inputs, output):
    ctx.actions.run(
        executable = tool,
        arguments = [arguments],
        inputs = depset(inputs, transitive = [find_cpp_toolchain(ctx).all_files]),
        outputs = [output],
        mnemonic = "RondoArchive",
        progress_message = "Archiving %s" % output.short_path,
    )

# Names of the C++ library that the object defines: weak, since a program has them, too. Not those that it only uses: a
# static library's members are not linked for weak references.
_STANDARD_NAMES = "'^_Z(|N|ZN|ZNK|GVN|GVZN)St'"

# One object of all, in which hidden symbols are local.
def _relocatable(ctx, objects):
    linked = ctx.actions.declare_file(ctx.label.name + ".linked.o")
    arguments = ctx.actions.args()

    # Without groups: the linker would drop one of two groups of a name, and with it symbols that are local below.
    arguments.add_all(["-r", "--force-group-allocation", "-o", linked])
    arguments.add_all(objects)
    _run(ctx, find_cpp_toolchain(ctx).ld_executable, arguments, objects, linked)

    plain = ctx.actions.declare_file(ctx.label.name + ".plain.o")
    ctx.actions.run_shell(
        command = "python3 {} {} {}".format(ctx.file._no_unique.path, linked.path, plain.path),
        inputs = [linked, ctx.file._no_unique],
        outputs = [plain],
        mnemonic = "RondoArchive",
        use_default_shell_env = True,
        progress_message = "Making unique names of %s global" % linked.short_path,
    )

    names = ctx.actions.declare_file(ctx.label.name + ".names")
    ctx.actions.run_shell(
        command = "{} --defined-only --extern-only --format=posix {} | cut -d' ' -f1 | grep -E {} >{}".format(
            find_cpp_toolchain(ctx).nm_executable,
            plain.path,
            _STANDARD_NAMES,
            names.path,
        ),
        inputs = depset([plain], transitive = [find_cpp_toolchain(ctx).all_files]),
        outputs = [names],
        mnemonic = "RondoArchive",
        progress_message = "Listing names of %s" % plain.short_path,
    )
    local = ctx.actions.declare_file(ctx.label.name + ".o")
    arguments = ctx.actions.args()
    arguments.add_all(["--localize-hidden", "--weaken-symbols=" + names.path, plain, local])
    _run(ctx, find_cpp_toolchain(ctx).objcopy_executable, arguments, [plain, names], local)
    return local

def _archive_impl(ctx):
    objects = _objects(ctx.attr.library)
    if ctx.attr.hides:
        objects = [_relocatable(ctx, objects)]
    arguments = ctx.actions.args()
    arguments.add_all(["qcsD", ctx.outputs.out])
    arguments.add_all(objects)
    _run(ctx, find_cpp_toolchain(ctx).ar_executable, arguments, objects, ctx.outputs.out)

whole_archive = rule(
    implementation = _archive_impl,
    attrs = {
        "library": attr.label(providers = [CcInfo], mandatory = True),
        "out": attr.output(mandatory = True),
        "hides": attr.bool(doc = "hidden symbols are local: a program may have its own of the same names"),
        "_no_unique": attr.label(default = "//tools/native:no_unique.py", allow_single_file = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    incompatible_use_toolchain_transition = True,
)
