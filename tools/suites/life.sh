#!/usr/bin/env bash
# Drawn lives (tests/life) for RONDO_LIFE_SECONDS (3600); RONDO_LIFE_CONFIG=asan or tsan: under that sanitizer.
set -euo pipefail
source tools/lib/suite.sh
source tools/lib/torch.sh

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
seconds=${RONDO_LIFE_SECONDS:-3600}

# A quarter of the time has ranks of Python, where the suite torch has installed what they need.
python=.venv-torch/bin/python
if [[ -n $RONDO_LIFE_CONFIG ]]; then
  echo "No ranks of Python: they load no library under a sanitizer"
elif ! "$python" -c "import ml_dtypes, numpy, torch" 2>/dev/null; then
  echo "No ranks of Python: $PWD/.venv-torch has no NumPy, ml_dtypes and torch (tools/test.sh torch makes it)"
else
  check "tools/wheel.sh" tools/wheel.sh
  install_wheel .venv-torch
  check "python -m rondo.torch.build" "$python" -m rondo.torch.build
  export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
  check "lives of ranks with NumPy and torch" "$bin/life" --seconds=$((seconds / 4)) --patience=60 \
    --python="$python tests/life/python/life_rank.py" --doors=numpy,cpp/numpy,c/numpy/torch
  seconds=$((seconds - seconds / 4))
fi
check "lives${RONDO_LIFE_CONFIG:+ under $RONDO_LIFE_CONFIG}" \
  "${start[@]}" "$bin/life" --seconds="$seconds" --patience=$patience
finish_checks
