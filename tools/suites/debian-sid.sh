#!/usr/bin/env bash
# Debian sid, its newest compiler, fmt, OpenSSL and Bazel (7): `pip install ./python` and tools/install.sh in a root made
# by debootstrap.
set -euo pipefail
source tools/lib/suite.sh
source tools/lib/debian_root.sh

builds_on sid "Debian sid"
finish_checks
