"""The names that programs find the libraries by; the version itself stands in ring/include/rondo/rondo.h."""

# Major and minor: before 1.0, programs linked against another minor version must be linked anew.
RONDO_SONAME = "librondo.so.0.2"
RONDO_C_SONAME = "librondo_c.so.0.2"
