#!/usr/bin/env bash
# The wheel on the systems it is for: manylinux_2_28, roots of Debian 11 to sid and of Ubuntu 22.04, aarch64 under qemu.
# A table says what works where. Wants root, the packages of Debian and Ubuntu, and PyPI.
set -euo pipefail
source tools/lib/suite.sh
source tools/lib/debian_root.sh
source tools/lib/aarch64.sh

need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv g++-aarch64-linux-gnu qemu-user-static
log=$folder/log
table="| system | C library | import | 2 ranks | programs | torch |"$'\n'"|---|---|---|---|---|---|"

check "tools/wheel.sh --manylinux" tools/wheel.sh --manylinux --torch 2.13.0
wheel=$(compgen -G "build/wheel/rondo_ring-*-cp311-abi3-manylinux_2_*_x86_64.whl") || true
within_2_28() { [[ $1 =~ manylinux_2_([0-9]+)_ ]] && ((BASH_REMATCH[1] <= 28)); }
check "auditwheel calls it manylinux_2_28 or older" within_2_28 "$wheel"
small() { (($(stat -c %s "$1") <= 14 * 1000 * 1000)); }
check "it has at most 14 MB" small "$wheel"
finish_checks

# cell NAME COMMAND...: one check, and its result in the table.
cell() {
  if "${@:2}" >"$log" 2>&1; then
    record pass "$system: $1"
    row+=" yes |"
  else
    cat "$log"
    record fail "$system: $1"
    row+=" no |"
  fi
}

# wheels PYTHON PLATFORM PACKAGE...: puts them into the root.
wheels() {
  mkdir -p "$root/wheels"
  .venv-wheel/bin/python -m pip download --quiet --disable-pip-version-check --dest "$root/wheels" --only-binary :all: --python-version "$1" \
    --platform "manylinux_2_28_$2" --platform "manylinux_2_17_$2" --platform "manylinux2014_$2" "${@:3}"
}

# version_of PYTHON: of "python3", "3.13".
version_of() { in_root "python$1 -c \"import sys; print(*sys.version_info[:2], sep=chr(46))\""; }
# ready PYTHON: an environment with the wheel in the root.
ready() { in_root "python$1 -m venv /v && /v/bin/pip install --quiet --no-index --find-links /wheels rondo-ring"; }
imports() { in_root "/v/bin/python -c \"import rondo; print(rondo.__version__)\""; }
two() { cp tests/launchers/sum.py "$root/sum.py" && two_ranks "/v/bin/rondo-run -n 2 /v/bin/python /sum.py"; }
programs() {
  in_root "cd /tmp && rm -rf trace && mkdir trace && RONDO_TRACE=/tmp/trace /v/bin/rondo-run -n 2 /v/bin/python /sum.py &&
    /v/bin/rondo-trace report /tmp/trace >report.txt && /v/bin/rondo-top --help && /v/bin/rondo-view -o view.html &&
    /v/bin/rondo-doctor && /v/bin/rondo-bench --ranks 2 -e 1K --seconds 0.01 && test -s report.txt -a -s view.html"
}
torch() {
  cat >"$root/torch_sum.py" <<'SCRIPT'
import time, torch, torch.distributed as dist

begin = time.monotonic()
dist.init_process_group("rondo")
tensor = torch.ones(2) * (1 + dist.get_rank())
dist.all_reduce(tensor)
took = time.monotonic() - begin
assert took < 3, took
print(f"rank {dist.get_rank()} of 2: sum {tensor[0]:g}", flush=True)
SCRIPT
  wheels 3.11 x86_64 torch==2.13.0 && in_root "/v/bin/pip install --quiet --no-index --find-links /wheels torch" &&
    two_ranks "/v/bin/rondo-run -n 2 /v/bin/python /torch_sum.py"
}
c_library() { in_root "getconf GNU_LIBC_VERSION" | cut -d' ' -f2; }

# A Python that came after the release, which is in its updates. more: its packages.
later_packages() {
  echo "deb $site $1-updates main universe" >>"$root/etc/apt/sources.list"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  in_root "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $more"
}

# root_with_wheel CODENAME PYTHON [FLAG...]
root_with_wheel() {
  bare_root "$1" "${@:3}" || return 1
  [[ -z ${more:-} ]] || later_packages "$1" || return 1
  wheels "$(version_of "$2")" x86_64 numpy && cp "$wheel" "$root/wheels" && ! in_root "command -v cc gcc g++ clang"
}

# on NAME CODENAME PYTHON [FLAG...]: a row. The flags are debootstrap's.
on() {
  system=$1
  rm -rf --one-file-system "$root"
  if ! root_with_wheel "${@:2}" >"$log" 2>&1; then
    tail "$log"
    record fail "$1: a root"
    return
  fi
  row="| $1 | $(c_library) |"
  check "$1: pip install in 10 s" within 10 "pip install on $1" ready "$3"
  cell "import rondo" imports
  cell "two ranks" two
  cell "programs" programs
  # torch's wheel of the CPU build is for this Python.
  if [[ $(version_of "$3") == 3.11 ]]; then cell "torch" torch; else row+=" not tried |"; fi
  table+=$'\n'$row
}

# Debian 11's Python is too old for the package: its files by themselves.
carried() {
  mkdir -p "$root/v" && python3 -m zipfile -e "$wheel" "$root/v" && chmod +x "$root"/v/rondo/_native/rondo-*
}
loads() { in_root "python3 -c \"import ctypes; ctypes.CDLL(\\\"/v/rondo/_native/librondo_c.so.0.2\\\").rondo_last_error\""; }
without_python() {
  in_root "cd /v/rondo/_native && ./rondo-doctor && ./rondo-view -o /tmp/view.html && ./rondo-run --version && ./rondo-run -n 2 true"
}
bench() { in_root "/v/rondo/_native/rondo-bench --ranks 2 -e 1K --seconds 0.01"; }
old_debian() {
  system="Debian 11"
  rm -rf --one-file-system "$root"
  check "$system: a root" bare_root bullseye --include=python3 >"$log" 2>&1
  check "$system: the wheel, unpacked" carried
  row="| $system (Python 3.9: by ctypes) | $(c_library) |"
  cell "the library loads" loads
  cell "two ranks of rondo-bench" bench
  cell "programs" without_python
  table+=$'\n'"$row not tried |"
}

old_debian
on "Debian 12" bookworm 3 --include=python3,python3-venv
on "Debian 13" trixie 3 --include=python3,python3-venv
on "Debian sid" sid 3 --include=python3,python3-venv
site=http://archive.ubuntu.com/ubuntu more="python3.11 python3.11-venv" \
  on "Ubuntu 22.04" jammy 3.11 --no-check-gpg --components=main,universe --include=ca-certificates

# --- aarch64: cross-compiled, run under qemu

# tests/shared/store_order_test is not among these: qemu lets a load with acquire pass an earlier store with release,
# which no processor does.
KERNEL_TESTS=(tests/kernels/{combine_shapes,combine_values,crc32c,cross_copy,finite,float_mode,pack,select,stream_copy,wire_codec}_test.cc)
OTHER_TESTS=(tests/plan/build_test.cc tests/p2p/{matcher,wire}_test.cc tests/shared/{cell_ring,post_board}_test.cc)
# tests/python, groups of 1 to 4 ranks, without what wants more than the wheel, and bars of time.
python_tests() {
  mkdir -p "$root/rondo"
  git ls-files -co --exclude-standard | tar -T - -cf - | tar -C "$root/rondo" -xf -
  wheels 3.11 aarch64 pytest ml_dtypes cloudpickle && in_root "/v/bin/pip install --quiet --no-index --find-links /wheels pytest ml_dtypes cloudpickle &&
    cd /rondo && RONDO_TREE=/rondo PYTHONDONTWRITEBYTECODE=1 timeout 900 /v/bin/python -m pytest -q -p no:cacheprovider \
      --ignore tests/python/test_costs.py --ignore tests/python/test_device.py --ignore tests/python/test_types.py \
      --deselect tests/python/test_examples.py::test_ring_and_star tests/python"
}
over_tcp() { two_ranks "RONDO_TRANSPORT=tcp /v/bin/rondo-run -n 2 /v/bin/python /sum.py"; }

on_aarch64() {
  system="aarch64, Debian 12"
  rm -rf --one-file-system "$root"
  check "$system: a root" aarch64_root
  check "$system: the wheel, cross-compiled" aarch64_wheel
  check "$system: an environment" eval "wheels 3.11 aarch64 numpy && ready 3"
  row="| $system (qemu) | $(c_library) |"
  cell "import rondo" imports
  cell "two ranks" two
  row+=" not carried | not tried |"
  table+=$'\n'$row
  check "$system: two ranks over TCP" over_tcp
  check "$system: tests of kernels" aarch64_test "${KERNEL_TESTS[@]}"
  check "$system: tests of plans, messages and shared memory" aarch64_test "${OTHER_TESTS[@]}"
  check "$system: tests/python" python_tests
}
on_aarch64

echo "$table"
finish_checks
