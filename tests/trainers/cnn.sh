#!/usr/bin/env bash
# examples/trainers/cnn.py: the same lines by rondo-run, by processes of its own, and under Open MPI's and MPICH's
# launchers. (tests/torch/test_trainer.py has the rest.) elastic.py beside it.
#   tests/trainers/cnn.sh PYTHON IMAGES    PYTHON: one with torch and rondo
set -euo pipefail
source tools/lib/suite.sh

python=$1 images=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OMP_NUM_THREADS=1
cnn=("$python" examples/trainers/cnn.py --folder "$images" --images 640 --epochs 2 --option int8
  --json "$folder/rows.jsonl")

# prints NAME COMMAND...: what `rondo-run` prints.
prints() {
  timeout 300 "${@:2}" >"$folder/$1" 2>"$folder/err" || {
    cat "$folder/$1" "$folder/err"
    return 1
  }
  diff "$folder/rondo-run" "$folder/$1"
}
check "rondo-run" prints rondo-run "$python" -m rondo.run -n 2 --no-prefix "${cnn[@]}"
check "it prints two epochs" test "$(grep -c 'Evaluation accuracy = ' "$folder/rondo-run")" = 2
check "multiprocessing" prints processes "${cnn[@]}" --processes 2
check "mpirun" prints mpirun mpirun.openmpi --allow-run-as-root --oversubscribe --mca plm isolated -n 2 "${cnn[@]}"
check "mpiexec" prints mpiexec mpiexec.hydra -n 2 "${cnn[@]}"
check "two epochs are in the file of each start" test "$(wc -l <"$folder/rows.jsonl")" = 8

# Of four ranks two are killed, and one comes in their place: as accurate as without, by 0.3 points.
elastic() {
  timeout 300 "$python" -m rondo.run -n 4 --elastic 2:3 --no-prefix "$python" examples/trainers/elastic.py --folder "$images" \
    --epochs 4 --batch 32 --kill "$1" | grep "$2" | grep -o '[0-9.]* %'
}
goes_on() {
  local undisturbed disturbed
  undisturbed=$(elastic "" "4 ranks, epoch 0") && disturbed=$(elastic 60:1,120:0 "3 ranks, epoch 3") &&
    awk "BEGIN { off = ${undisturbed% %} - ${disturbed% %}; exit off > 0.3 || off < -0.3 }" && return
  echo "undisturbed $undisturbed, with deaths $disturbed"
  return 1
}
check "elastic.py ends as well after deaths" goes_on
finish_checks
