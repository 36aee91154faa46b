# shellcheck shell=bash
# For suites: Rondo for aarch64, compiled here by Debian's cross compiler and run under qemu. folder, root: those of
# tools/lib/debian_root.sh.
: "${folder:?}" "${root:?}"

# aarch64_root: Debian 12's in $root, unpacked and not configured, which is enough to compile against and for Python.
aarch64_root() {
  bare_root bookworm --foreign --arch=arm64 --include=python3,python3-venv,libc6-dev,libssl-dev,libasio-dev,libfmt-dev,libcli11-dev,doctest-dev \
    >"$folder/root.log" 2>&1 || {
    tail "$folder/root.log"
    return 1
  }
  local package
  for package in "$root"/var/cache/apt/archives/*.deb; do dpkg -x "$package" "$root"; done
  run_by_qemu
}

# The kernel starts the root's programs by qemu, which it holds open (F): the root need not have it. Until the suite ends.
run_by_qemu() {
  local formats=/proc/sys/fs/binfmt_misc magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
  local mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
  [[ -e $formats/register ]] || mount -t binfmt_misc binfmt_misc "$formats"
  compgen -G "$formats/*aarch64*" >/dev/null && return
  echo ":rondo-aarch64:M::$magic:$mask:$(command -v qemu-aarch64-static):F" >"$formats/register"
  trap 'echo -1 >/proc/sys/fs/binfmt_misc/rondo-aarch64; rm -rf --one-file-system "$folder"' EXIT
}

# aarch64_wheel: pip's way, in the root's /wheels. It leaves the compiled files in python/build, for aarch64_test.
aarch64_wheel() {
  local flags
  mapfile -t flags < <(CXX="aarch64-linux-gnu-g++ --sysroot=$root" python3 tools/native/old_libc.py "$folder/old_libc")
  cross="aarch64-linux-gnu-g++ --sysroot=$root ${flags[*]}"
  rm -rf python/build # files of another run would be linked, too
  mkdir -p "$root/wheels"
  CXX=$cross _PYTHON_HOST_PLATFORM=linux-aarch64 .venv-wheel/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
    --no-build-isolation --wheel-dir "$root/wheels" ./python
}

# aarch64_test TEST.cc...: each compiled with the library's files, the references' and those of tests/support, and run.
aarch64_test() {
  local compile objects support=() source test
  compile="$cross -std=c++20 -O1 -fPIC -fsigned-char -ffp-contract=off -fvisibility=hidden -iquote . -Iring/include"
  compile+=" $(python3 -c 'import sys; sys.path.insert(0, "tools/native"); import units; print(*units.asio_defines())')"
  objects=$(find python/build/native -name '*.o' ! -name 'tools_launcher*' ! -name 'tools_rondo_run*' ! -name 'python_module*')
  for source in tests/doctest_main.cc {bench/loop,tests/support}/{element,reference}.cc tests/support/resources.cc; do
    $compile -c "$source" -o "$folder/${source//\//_}.o" || return 1
    support+=("$folder/${source//\//_}.o")
  done
  for test in "$@"; do
    # shellcheck disable=SC2086  # lists of words
    if ! $compile "$test" "${support[@]}" $objects -Wl,--gc-sections -Wl,-Bstatic -lssl -lcrypto -Wl,-Bdynamic -static-libstdc++ \
      -static-libgcc -pthread -ldl -o "$root/test" || ! in_root /test; then
      echo "FAILED on aarch64: $test"
      return 1
    fi
  done
}
