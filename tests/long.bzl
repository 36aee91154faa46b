"""A test of this size for every change, and of a large one for the suites of long runs."""

load("//tools/bazel:rondo.bzl", "rondo_test")

# NAME_test, and NAME_long_test with other arguments, environment or shards, which runs in the suite of that tag.
def rondo_test_and_long(
        name,
        args = [],
        long_args = [],
        long_env = {},
        long_shards = None,
        long_tag = "faults-long",
        tags = [],
        size = "medium",
        timeout = None,
        more_srcs = [],
        **kwargs):
    rondo_test(name = name, size = size, timeout = timeout, srcs = [name + ".cc"] + more_srcs, args = args, tags = tags, **kwargs)
    kwargs.pop("shard_count", None)
    rondo_test(
        name = name[:-len("_test")] + "_long_test",
        timeout = "eternal",
        srcs = [name + ".cc"] + more_srcs,
        args = long_args,
        env = long_env,
        shard_count = long_shards,
        tags = tags + ["slow", long_tag],
        **kwargs
    )
