#!/usr/bin/env bash
# A call on 8 bytes passes through no more functions before its first byte than it did; none has over 70 lines.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" binutils python3
run_bazel build --config=first_byte //tests/engine:first_byte
check "functions before the first byte" tests/engine/first_byte.py \
  "$(run_bazel info --config=first_byte bazel-bin)/tests/engine/first_byte" \
  all_reduce/shm=60 all_reduce/tcp=127 all_reduce_async/shm=69 all_reduce_async/tcp=136 \
  send/shm=54 send/tcp=91 send_async/shm=50 send_async/tcp=73 recv_async/shm=74 recv_async/tcp=66
finish_checks
