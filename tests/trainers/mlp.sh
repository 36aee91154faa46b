#!/usr/bin/env bash
# examples/trainers/mlp.cc: every option trains; a checkpoint resumes to the same lines, 2 ranks' by 4; what cannot
# be is refused in words.
#   tests/trainers/mlp.sh MLP RONDO_RUN IMAGES
set -euo pipefail
source tools/lib/suite.sh

program=$1 launcher=$2 images=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# mlp RANKS OPTION...: 3,200 images
mlp() {
  local ranks=$1
  shift
  timeout 120 "$launcher" -n "$ranks" --no-prefix "$program" --images 3200 --folder "$images" "$@"
}
last_loss() { grep -o 'Training loss = [0-9.]*' "$1" | tail -1 | grep -o '[0-9.]*$'; }
# learns RANKS OPTION: the second epoch's loss is below the first one's.
learns() {
  mlp "$1" --option "$2" --epochs 2 >"$folder/$2.$1" || return 1
  local first
  first=$(grep -o 'Training loss = [0-9.]*' "$folder/$2.$1" | head -1 | grep -o '[0-9.]*$')
  awk -v first="$first" -v last="$(last_loss "$folder/$2.$1")" 'BEGIN { exit !(last < first) }'
}
for option in fp32 fp16 bf16 int8 sparseTopK sparseThreshold partialUpdate localSGD; do
  check "mlp, $option, 2 ranks" learns 2 "$option"
done
check "mlp, 1 rank" learns 1 fp32
check "mlp, 4 ranks" learns 4 int8

resumes() {
  mlp 2 --option "$1" --epochs 1 --checkpoint "$folder/c.$1" >"$folder/parts" &&
    mlp 2 --option "$1" --epochs 2 --checkpoint "$folder/c.$1" >>"$folder/parts" &&
    diff "$folder/$1.2" "$folder/parts"
}
for option in fp32 int8 sparseTopK partialUpdate localSGD; do
  check "mlp, $option: a checkpoint resumes to the same lines" resumes "$option"
done
# Ranks that differ after partialUpdate are equal when another option goes on.
made_equal() {
  cp "$folder/c.partialUpdate" "$folder/c.equal"
  mlp 2 --option bf16 --epochs 3 --checkpoint "$folder/c.equal" >"$folder/out" || return 1
  python3 - "$folder/c.partialUpdate" "$folder/c.equal" <<'END'
import struct, sys

def equal(file):  # of the two first arrays, of 8 and 4 bytes an element, the last: parameters of both ranks
    data, at = open(file, "rb").read(), 0
    for width in (8, 4):
        (count,) = struct.unpack_from("<Q", data, at)
        part, at = data[at + 8 : at + 8 + width * count], at + 8 + width * count
    return part[: len(part) // 2] == part[len(part) // 2 :]

sys.exit([equal(file) for file in sys.argv[1:]] != [False, True])
END
}
check "mlp: another option after partialUpdate" made_equal
by_four() {
  mlp 4 --option int8 --epochs 4 --checkpoint "$folder/c.int8" >"$folder/four" &&
    [[ $(grep -c "Starting Epoch [23]:" "$folder/four") == 2 && $(wc -l <"$folder/four") == 6 ]]
}
check "mlp: 2 ranks' checkpoint resumed by 4" by_four

# refused WORDS OPTION...
refused() {
  local words=$1
  shift
  if mlp 2 "$@" >"$folder/out" 2>&1 || ! grep -q -- "$words" "$folder/out"; then
    cat "$folder/out"
    return 1
  fi
}
check "spars 0" refused "spars is 0; top-k needs a fraction above 0" --option sparseTopK --spars 0
check "a misspelt option" refused "option int88 is no option of DistOpt" --option int88
check "no number" refused "--spars 0,1 is no such number" --option sparseTopK --spars 0,1
head -c 1000 "$folder/c.int8" >"$folder/short"
check "a checkpoint that is cut off" refused "is cut off" --checkpoint "$folder/short"
finish_checks
