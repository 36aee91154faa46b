#!/bin/sh
# The objects built for an instruction set define no symbol that the linker may merge with another unit's: a merged
# inline function would run AVX-512 code on a processor that has none.
set -eu
if [ $# -eq 0 ]; then
  echo "only the baseline is built for this processor: nothing to look at"
  exit 0
fi
status=0
found=0
for archive in "$@"; do
  case "$archive" in *.a) ;; *) continue ;; esac
  found=$((found + 1))
  if nm -C "$archive" | grep -E ' [VWuvw] '; then
    echo "mergeable symbols in $archive" >&2
    status=1
  fi
done
[ "$found" -ge 2 ] || { echo "expected the archives of two instruction sets or more, got: $*" >&2; exit 1; }
exit $status
