"""Stand-in: the native proto rules; nothing here builds protos, but Bazel's own BUILD files load these names."""

proto_lang_toolchain = native.proto_lang_toolchain
proto_library = native.proto_library
