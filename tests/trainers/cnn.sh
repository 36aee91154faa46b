#!/usr/bin/env bash
# examples/trainers/cnn.py: the same lines by rondo-run, by processes of its own, and under Open MPI's and MPICH's
# launchers; tables of their rows. (tests/torch/test_trainer.py has the rest.)
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
tabulates() { "$python" examples/trainers/table.py "$folder/rows.jsonl" "$@"; }
check "table.py" grep -q "^| int8 | 2 | 64 | 2 | 1 | " <(tabulates)
check "table.py --speed" grep -q "^| int8 | 2 | 64 | [0-9,]* | " <(tabulates --speed)
finish_checks
