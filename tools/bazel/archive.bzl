"""One archive of all objects of a cc_library and of what it depends on."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_LINK_STATIC_LIBRARY_ACTION_NAME")

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

def _archive_impl(ctx):
    cc_toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(ctx = ctx, cc_toolchain = cc_toolchain)
    objects = _objects(ctx.attr.library)
    arguments = ctx.actions.args()
    arguments.add("qcsD")
    arguments.add(ctx.outputs.out)
    arguments.add_all(objects)
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = CPP_LINK_STATIC_LIBRARY_ACTION_NAME,
        ),
        arguments = [arguments],
        inputs = depset(objects, transitive = [cc_toolchain.all_files]),
        outputs = [ctx.outputs.out],
        mnemonic = "RondoArchive",
        progress_message = "Archiving %s" % ctx.outputs.out.short_path,
    )

whole_archive = rule(
    implementation = _archive_impl,
    attrs = {
        "library": attr.label(providers = [CcInfo], mandatory = True),
        "out": attr.output(mandatory = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    incompatible_use_toolchain_transition = True,
)
