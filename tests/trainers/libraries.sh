#!/usr/bin/env bash
# tests/lab/trainers/mlp_{rondo,mpi,gloo}.cc: at most 12 lines of each are not in the one by Rondo, those that run on
# this machine print the same losses with 2 ranks, and each prints its time a step.
#   tests/trainers/libraries.sh MLP_RONDO RONDO_RUN IMAGES    IMAGES: a folder of MNIST's files
set -euo pipefail
source tools/lib/suite.sh

program=$1 launcher=$2 images=$3
here=tests/lab/trainers
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

few_lines_differ() {
  local differing
  differing=$(diff "$here/mlp_rondo.cc" "$here/mlp_$1.cc" | grep -c '^>' || true)
  echo "mlp_$1.cc: $differing lines differ"
  ((differing > 0 && differing <= 12))
}

# trains NAME COMMAND...: 2 ranks, 2 epochs of 3,200 images.
trains() {
  local name=$1
  shift
  timeout 120 "$@" 2 3200 "$images" >"$folder/$name.txt" 2>"$folder/$name.err" || {
    cat "$folder/$name.txt" "$folder/$name.err"
    return 1
  }
  echo "$name: $(grep 'ms a step' "$folder/$name.txt")"
}
as_rondo() { diff <(grep -v "ms a step" "$folder/rondo.txt") <(grep -v "ms a step" "$folder/$1.txt"); }

for library in mpi gloo; do check "mlp_$library.cc differs in at most 12 lines" few_lines_differ "$library"; done
check "rondo" trains rondo "$launcher" -n 2 --no-prefix "$program"
check "it prints two epochs" test "$(grep -c 'Training loss = ' "$folder/rondo.txt")" = 2

for mpi in openmpi mpich; do
  build() { MPICXX=mpicxx.$mpi "$here/build.sh" "$folder" mpi && mv "$folder/mlp_mpi" "$folder/mlp_$mpi"; }
  run=(mpirun.openmpi --allow-run-as-root --oversubscribe --mca plm isolated -n 2)
  [[ $mpi == openmpi ]] || run=(mpiexec.hydra -n 2)
  check "mlp_mpi.cc by $mpi is built" build
  check "$mpi" trains "$mpi" "${run[@]}" "$folder/mlp_$mpi"
  check "$mpi trains the same" as_rondo "$mpi"
done

check "mlp_gloo.cc is built" "$here/build.sh" "$folder" gloo
mkdir "$folder/store"
check "gloo" trains gloo env GLOO_STORE="$folder/store" "$launcher" -n 2 --no-prefix "$folder/mlp_gloo"
check "gloo trains the same" as_rondo gloo
finish_checks
