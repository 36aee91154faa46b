#!/usr/bin/env bash
# C++ and CUDA sources in the tree's format (.clang-format).
#   tools/format.sh           rewrites the files that differ
#   tools/format.sh --check   names them instead, exit code 1 if there are any
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/lib/packages.sh
need_packages git clang-format

mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.h' '*.cc' '*.c' '*.cu' '*.cuh')
existing=()
for file in "${files[@]}"; do [[ -f $file ]] && existing+=("$file"); done

# clang_format ARGUMENT...: on all cores.
clang_format() { printf '%s\0' "${existing[@]}" | xargs -0 -n 50 -P "$(nproc)" clang-format "$@"; }

case ${1:-} in
  --check) clang_format --dry-run --Werror ;;
  "") clang_format -i ;;
  *)
    echo "usage: tools/format.sh [--check]" >&2
    exit 2
    ;;
esac
