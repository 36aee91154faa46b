#!/usr/bin/env bash
# Drawn lives (tests/life) for RONDO_LIFE_SECONDS (3600); RONDO_LIFE_CONFIG=asan or tsan: under that sanitizer.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" iproute2
flags=() start=() patience=20
case ${RONDO_LIFE_CONFIG:=} in
  "") ;;
  asan)
    export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1
    export UBSAN_OPTIONS=print_stacktrace=1
    ;;
  tsan)
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
    # GCC 12's thread sanitizer knows the memory layout of at most 28 random bits.
    start=(setarch "$(uname -m)" -R)
    ;;
  *)
    echo "RONDO_LIFE_CONFIG is asan or tsan, not '$RONDO_LIFE_CONFIG'" >&2
    exit 2
    ;;
esac
if [[ -n $RONDO_LIFE_CONFIG ]]; then
  flags=(--config="$RONDO_LIFE_CONFIG")
  patience=90
fi
run_bazel build "${flags[@]}" //tests/life
bin=$(run_bazel info "${flags[@]}" bazel-bin 2>/dev/null)/tests/life
check "lives${RONDO_LIFE_CONFIG:+ under $RONDO_LIFE_CONFIG}" \
  "${start[@]}" "$bin/life" --seconds="${RONDO_LIFE_SECONDS:-3600}" --patience=$patience
finish_checks
