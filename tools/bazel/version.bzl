"""The version of the library, said once: rondo_version(), pkg-config and CMake all have it from here."""

RONDO_VERSION = "0.1.0"

# Grows when programs linked against the library before must be linked anew.
RONDO_SONAME = "librondo.so.0"
