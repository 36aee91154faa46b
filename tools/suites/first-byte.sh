#!/usr/bin/env bash
# A call on 8 bytes passes through no more functions before its first byte than it did; none has over 70 lines.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" binutils python3
run_bazel build --config=first_byte //tests/engine:first_byte
check "functions before the first byte" tests/engine/first_byte.py \
  "$(run_bazel info --config=first_byte bazel-bin)/tests/engine/first_byte" \
  all_reduce/shm=91 all_reduce/tcp=154 all_reduce_async/shm=100 all_reduce_async/tcp=163 \
  send/shm=58 send/tcp=99 send_async/shm=105 send_async/tcp=91 recv_async/shm=110 recv_async/tcp=101
finish_checks
