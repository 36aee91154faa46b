#!/usr/bin/env bash
# librondo.so's binary interface, by abidiff, beside the last version's (tag v*; RONDO_ABI_BASE: another commit): where it
# has changed so that programs must be linked anew, the soname must have.
set -euo pipefail
source tools/lib/suite.sh

base=${RONDO_ABI_BASE:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)}
if [[ -z $base ]]; then
  echo "There is no tag v*, and so no version to compare with: RONDO_ABI_BASE names a commit" >&2
  exit 2
fi
need_packages abigail-tools git "${BUILD_PACKAGES[@]}"
folder=$(mktemp -d)
# Bazel keeps what it has built for the other tree, and a server, elsewhere.
clean_up() {
  [[ ! -d $folder/base ]] || (cd "$folder/base" && run_bazel clean --expunge) || true
  git worktree remove --force "$folder/base" 2>/dev/null || true
  rm -rf "$folder"
}
trap clean_up EXIT

# library TREE NAME: librondo.so of a tree, with types of what ring/api uses.
library() {
  (cd "$1" && run_bazel build --per_file_copt='^ring/api/.*@-g' --strip=never //ring:librondo.so && cp "$(bazel_bin)/ring/librondo.so" "$folder/$2.so")
}
soname() { objdump -p "$folder/$1.so" | sed -n 's/^ *SONAME *//p'; }
# abidiff's bits: 1 and 2 are errors, 4 a change (of a class's layout, too), 8 one that breaks every program. What is only
# added breaks none.
unchanged_or_renamed() {
  local status=0
  abidiff --no-added-syms --headers-dir1 "$folder/base/ring/include" --headers-dir2 ring/include "$folder/base.so" "$folder/tree.so" || status=$?
  ((!(status & 3))) || return 1
  ((!(status & 12))) || [[ $(soname base) != "$(soname tree)" ]] && return
  echo "A program linked with $base would load this library as $(soname tree), and break: change RONDO_SONAME and RONDO_C_SONAME"
  return 1
}

check "$base in a folder of its own" git worktree add --detach "$folder/base" "$base"
check "its librondo.so" library "$folder/base" base
check "this librondo.so" library . tree
finish_checks
check "the binary interface is that of $base, or has another name" unchanged_or_renamed
finish_checks
