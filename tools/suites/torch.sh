#!/usr/bin/env bash
# torch.distributed's backend "rondo", installed beside torch in an environment of its own: its tests, and three scripts.
set -euo pipefail
source tools/lib/suite.sh
source tools/lib/torch.sh

need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv
check "tools/wheel.sh" tools/wheel.sh
venv=$PWD/.venv-torch
torch_environment "$venv"
pip_install "$venv" numpy ml_dtypes pytest
install_wheel "$venv"
run_bazel build //tests/life //tests/support/fake_cuda:libcuda.so.1

tree=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 RONDO_TORCH_CACHE=$folder/cache
python=("$venv/bin/python")
cd "$folder"

# `import torch` alone knows the backend, and pays at most 5 ms for it; Rondo itself is not imported yet.
entry_point() {
  "${python[@]}" - <<'SCRIPT'
import sys, time
from importlib.metadata import entry_points
import torch

assert "rondo" in torch.distributed.Backend.backend_list
assert "rondo" not in sys.modules
(entry,) = [entry for entry in entry_points(group="torch.backends") if entry.name == "rondo"]
del torch.distributed.Backend._plugins["RONDO"], sys.modules["_rondo_torch"]
begin = time.process_time()
entry.load()()
took = 1000 * (time.process_time() - begin)
print(f"the entry point took {took:.2f} ms")
assert took < 5
SCRIPT
}
check "import torch knows the backend" entry_point

cat >script.py <<'SCRIPT'
import torch, torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.ones(3) * (1 + dist.get_rank())
dist.all_reduce(tensor)
print(f"rank {dist.get_rank()}: {tensor.tolist()}", flush=True)
dist.destroy_process_group()
SCRIPT
sed 's/"gloo"/"rondo"/' script.py >changed.py

# starts COMMAND...: two ranks of the script with one word changed print what gloo's print.
starts() {
  "$@" changed.py >out.txt 2>err.txt || { cat err.txt && return 1; }
  [[ $(grep -o 'rank [01]: \[3.0, 3.0, 3.0\]' out.txt | wc -l) == 2 ]] || { cat out.txt err.txt && return 1; }
}
torchrun=("$venv/bin/torchrun" --nproc-per-node 2)
# By a compiler of two words, as "ccache g++".
compiled() { CXX="env g++" starts "$@"; }
check "one word changed, torchrun, compiled at its first use" compiled "${torchrun[@]}"
check "one rank has compiled, the other has waited, and said so" grep -q "waiting for another process" err.txt
check "compiling says how long it takes" grep -q "still compiling, for 5 s" err.txt

# A cache folder that cannot be written, and a compiler that is not there.
no_folder() {
  RONDO_TORCH_CACHE=/proc/nowhere TMPDIR=$folder starts "${torchrun[@]}" && grep -q "/proc/nowhere cannot be written" err.txt
}
check "a cache folder that cannot be written" no_folder
no_compiler() {
  ! RONDO_TORCH_CACHE=$folder/empty CXX=no-such-compiler "${torchrun[@]}" changed.py >out.txt 2>&1 &&
    grep -q "there is no no-such-compiler: apt-get install g++" out.txt
}
check "a missing compiler is named" no_compiler

# From here on the wheel carries the backend: nothing is compiled, and nothing asks for a compiler.
torch_folder=$("${python[@]}" -c 'import torch, pathlib; print(pathlib.Path(torch.__file__).parent)')
check "tools/wheel.sh --torch" "$tree/tools/wheel.sh" --torch "$torch_folder"
(cd "$tree" && install_wheel "$venv")
carried() {
  RONDO_TORCH_CACHE=$folder/unused CXX=no-such-compiler starts "$@" && [[ ! -e $folder/unused ]]
}
check "what the wheel carries serves alone, torchrun" carried "${torchrun[@]}"
check "what the wheel carries serves alone, rondo-run" carried "$venv/bin/rondo-run" -n 2 "${python[@]}"

# Ctrl-C while a call waits for a rank that does not come: both scripts are interrupted within a second, and end. (The
# rest of a process's time is Python's, which takes torch apart.)
cat >waits.py <<'SCRIPT'
import os, time, torch, torch.distributed as dist

dist.init_process_group("rondo")
dist.barrier()
with open(f"ready.{dist.get_rank()}", "w") as file:
    file.write(str(os.getpid()))
try:
    if dist.get_rank() == 1:
        time.sleep(60)
    dist.all_reduce(torch.ones(1))
except BaseException:  # rank 1 may have told rank 0 before its own signal was handled
    with open(f"interrupted.{dist.get_rank()}", "w") as file:
        file.write(str(time.time_ns()))
    raise
SCRIPT
# torchrun takes its time to collect them: a process that has ended is gone.
runs() { grep -q '^State:[[:space:]]*[^Z]' "/proc/$(cat "$1")/status" 2>/dev/null; }
interrupted() {
  local torchrun_pid begin rank
  rm -f ready.* interrupted.*
  setsid "${torchrun[@]}" waits.py >out.txt 2>&1 &
  torchrun_pid=$!
  until [[ -s ready.0 && -s ready.1 ]]; do sleep 0.1; done
  sleep 0.3
  begin=$(date +%s%N)
  kill -INT -- -"$torchrun_pid"
  while runs ready.0 || runs ready.1; do
    (($(date +%s%N) - begin < 20000000000)) || return 1
    sleep 0.02
  done
  wait "$torchrun_pid" || true
  for rank in 0 1; do
    echo "rank $rank was interrupted after $((($(cat interrupted.$rank) - begin) / 1000000)) ms"
    (($(cat interrupted.$rank) - begin < 1000000000)) || return 1
  done
}
check "Ctrl-C" interrupted

cd "$tree"
log=$folder/pytest.log
check "pytest ran" pytest_counts "$venv" 1500 tests/torch
lives=("$(bazel_bin)/tests/life/life" --patience=60 --shrink-seconds=30 --python="$venv/bin/python tests/life/python/life_rank.py")
check "lives of ranks with torch" "${lives[@]}" --doors=torch --hosts=none --seeds=9-11
check "every collective by torch" "${lives[@]}" --doors=torch --play=tests/life/calls.life
check "tests/life/torch.life" "${lives[@]}" --play=tests/life/torch.life
check "tests/life/views.life" "${lives[@]}" --play=tests/life/views.life
finish_checks
