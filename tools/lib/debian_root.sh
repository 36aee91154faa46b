# shellcheck shell=bash
# For suites on another Debian: a root of it in a temporary folder, with the tree in /rondo. Beside tools/lib/suite.sh.

need_packages debootstrap git
folder=$(mktemp -d)
trap 'rm -rf --one-file-system "$folder"' EXIT
root=$folder/root

# bare_root CODENAME [FLAG...]: flags of debootstrap. site: of another distribution than Debian's.
bare_root() {
  local from=${site:-$(apt-get indextargets --format "\$(SITE)" "Codename: bookworm" "Component: main" | head -n 1)}
  debootstrap --variant=minbase "${@:2}" "$1" "$root" "$from"
}

# make_root CODENAME PACKAGE...
make_root() {
  # By apt inside: debootstrap itself does not order packages that depend on each other in a circle. A mirror may be a
  # snapshot, whose index is out of date.
  {
    bare_root "$1" --include=ca-certificates &&
      cp /etc/resolv.conf "$root/etc/resolv.conf" && in_root "apt-get -o Acquire::Check-Valid-Until=false update" &&
      in_root "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ${*:2}"
  } >"$folder/root.log" 2>&1 || {
    tail "$folder/root.log"
    return 1
  }
  mkdir "$root/rondo"
  git ls-files -co --exclude-standard | tar -T - -cf - | tar -C "$root/rondo" -xf -
}

# Mounts end with the command, and no setting of this system's environment holds.
in_root() {
  unshare --mount sh -ec "mount -t proc proc '$root/proc'; mount --rbind /dev '$root/dev'
    exec env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 chroot '$root' sh -ec '$1'"
}

# two_ranks COMMAND: of a program that says "of 2: ... 3".
two_ranks() {
  local output
  output=$(in_root "$1" 2>&1) && (($(grep -c "of 2: .*3$" <<<"$output") == 2)) && return
  echo "$output"
  return 1
}

# setuptools and NumPy are those of the system.
pip_install() {
  in_root "python3 -m venv --system-site-packages /venv && cd /rondo && /venv/bin/pip install --no-build-isolation --no-deps ./python"
}
python_program() { two_ranks "/venv/bin/rondo-run -n 2 /venv/bin/python /rondo/tests/launchers/sum.py"; }

install_rondo() { in_root "cd /rondo && tools/install.sh /usr/local && ldconfig"; }

# builds_on CODENAME NAME: checks a root of this Debian, with a compiler: `pip install ./python`, tools/install.sh, programs
# of both. Without a root it ends the suite.
builds_on() {
  check "a root of $2" make_root "$1" "${BUILD_PACKAGES[@]}" python3-venv python3-setuptools python3-wheel python3-numpy clang libc++-dev
  finish_checks # without a root nothing else can pass
  check "pip install ./python" pip_install
  check "its first program" python_program
  check "tools/install.sh" install_rondo
  check "a C++ program" cpp_program
  check "a program of libc++ by rondo-c" libcxx_program
}

# Of what is installed in /usr/local.
cpp_program() {
  in_root "cd /tmp && g++ -std=c++20 /rondo/tests/install/sum.cc -o sum \$(pkg-config --cflags --libs rondo)" &&
    two_ranks "rondo-run -n 2 /tmp/sum"
}
libcxx_program() {
  in_root "cd /tmp && clang++ -std=c++20 -stdlib=libc++ /rondo/tests/install/c_api.cc -o of_libcxx \$(pkg-config --cflags --libs rondo-c)" &&
    two_ranks "rondo-run -n 2 /tmp/of_libcxx"
}
