#!/usr/bin/env bash
# examples/trainers/mlp.cc: every option trains; what cannot be is refused in words.
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
finish_checks
