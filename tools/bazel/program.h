// Included before a program's files where they are part of a library (rondo.bzl): its main() is exported under another
// name.
#pragma once

extern "C" __attribute__((visibility("default"))) int RONDO_PROGRAM(int count, char** arguments);
