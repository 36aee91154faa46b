# shellcheck shell=bash
# need_packages PACKAGE...: installs those of Debian's packages that are missing, and says which.
# A package counts as there if what it brings is there, from any source: no package manager is asked in that case,
# and on other systems than Debian the same probes say what is missing.

# The compiler's wrapper finds mpi.h; the packages of mpirun bring wrappers without headers.
_compiles_mpi() { echo '#include <mpi.h>' | "$1" -E -x c++ - >/dev/null 2>&1; }

# _libcrypto_lacks LIBRARY HEADER: from OpenSSL 3.5 on (Debian 13) libcrypto.a needs more libraries.
_libcrypto_lacks() {
  [[ ! -e $2 ]] || return 1
  [[ -e /usr/include/openssl/evp.h ]] && command -v pkg-config >/dev/null || return 0
  [[ " $(pkg-config --static --libs libcrypto) " == *" -l$1 "* ]]
}

_package_present() {
  case $1 in
    bazel-bootstrap) command -v bazel >/dev/null ;;
    abigail-tools) command -v abidiff >/dev/null ;;
    binutils) command -v objdump >/dev/null ;;
    chromium) command -v chromium >/dev/null ;;
    chromium-driver) command -v chromedriver >/dev/null ;;
    clang) command -v clang >/dev/null && command -v clang++ >/dev/null ;;
    clang-format) command -v clang-format >/dev/null ;;
    cmake) command -v cmake >/dev/null ;;
    debhelper) command -v dh >/dev/null ;;
    debootstrap) PATH=$PATH:/usr/sbin:/sbin command -v debootstrap >/dev/null ;;
    doctest-dev) [[ -e /usr/include/doctest/doctest.h ]] ;;
    dh-python) command -v dh_python3 >/dev/null ;;
    dpkg-dev) command -v dpkg-buildpackage >/dev/null ;;
    g++) command -v g++ >/dev/null ;;
    g++-aarch64-linux-gnu) command -v aarch64-linux-gnu-g++ >/dev/null ;;
    git) command -v git >/dev/null ;;
    help2man) command -v help2man >/dev/null ;;
    iproute2) PATH=$PATH:/usr/sbin:/sbin command -v tc >/dev/null ;;
    libasio-dev) [[ -e /usr/include/asio.hpp ]] ;;
    libclang-rt-14-dev) compgen -G '/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.tsan*' >/dev/null ;;
    libcli11-dev) [[ -e /usr/include/CLI/CLI.hpp ]] ;;
    libfmt-dev) [[ -e /usr/include/fmt/format.h ]] ;;
    libgloo-dev) [[ -e /usr/include/gloo/allreduce.h ]] ;;
    libmpich-dev) _compiles_mpi mpicxx.mpich ;;
    libopenmpi-dev) _compiles_mpi mpicxx.openmpi ;;
    libpmix-dev) [[ -n $(find /usr/include /usr/lib -path '*/include/pmix.h' 2>/dev/null) ]] ;;
    libssl-dev) [[ -e /usr/include/openssl/evp.h ]] ;;
    libzstd-dev) ! _libcrypto_lacks zstd /usr/include/zstd.h ;;
    lintian) command -v lintian >/dev/null ;;
    make) command -v make >/dev/null ;;
    mpich) command -v mpiexec.hydra >/dev/null ;;
    munge) PATH=$PATH:/usr/sbin command -v munged >/dev/null ;;
    nlohmann-json3-dev) [[ -e /usr/include/nlohmann/json.hpp ]] ;;
    openmpi-bin) command -v mpirun.openmpi >/dev/null ;;
    openssh-server) [[ -x /usr/sbin/sshd ]] ;;
    pkg-config) command -v pkg-config >/dev/null ;;
    python3) command -v python3 >/dev/null ;;
    qemu-user-static) command -v qemu-aarch64-static >/dev/null ;;
    python3-dev) [[ -e $(python3 -c "import sysconfig; print(sysconfig.get_path('include'))" 2>/dev/null)/Python.h ]] ;;
    python3-venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
    shellcheck) command -v shellcheck >/dev/null ;;
    slurm-wlm) PATH=$PATH:/usr/sbin command -v slurmctld >/dev/null && command -v srun >/dev/null ;;
    zlib1g-dev) ! _libcrypto_lacks z /usr/include/zlib.h ;;
    *)
      echo "need_packages: no probe for '$1' in tools/lib/packages.sh" >&2
      exit 1
      ;;
  esac
}

# Sets `missing`, a variable of the caller.
_find_missing() {
  local package
  missing=()
  for package in "$@"; do
    _package_present "$package" || missing+=("$package")
  done
}

# By Debian's names, those of dnf, pacman, zypper and Nix; what is not here has the same name everywhere.
declare -A _ELSEWHERE=(
  [bazel-bootstrap]="bazel bazel bazel bazel_6"
  [doctest-dev]="doctest-devel doctest doctest-devel doctest"
  [g++]="gcc-c++ gcc gcc-c++ gcc"
  [libasio-dev]="asio-devel asio asio-devel asio"
  [libcli11-dev]="cli11-devel cli11 cli11-devel cli11"
  [libfmt-dev]="fmt-devel fmt fmt-devel fmt"
  [libssl-dev]="openssl-devel,openssl-static openssl libopenssl-devel openssl"
  [libzstd-dev]="libzstd-devel zstd libzstd-devel zstd"
  [nlohmann-json3-dev]="json-devel nlohmann-json nlohmann_json-devel nlohmann_json"
  [pkg-config]="pkgconf-pkg-config pkgconf pkg-config pkg-config"
  [python3-dev]="python3-devel python python3-devel python3"
  [python3-venv]="python3 python python3 python3"
  [zlib1g-dev]="zlib-devel zlib zlib-devel zlib"
)

# Fails, with the reason, where Rondo cannot be built whatever is installed.
check_system() {
  local machine
  machine=$(uname -m)
  if [[ $(uname -s) != Linux || ! $machine =~ ^(x86_64|aarch64)$ ]]; then
    echo "Rondo is for Linux on x86_64 and aarch64; this is $(uname -s) on $machine." >&2
    return 1
  fi
  if compgen -G "/lib/ld-musl-*" >/dev/null && ! compgen -G "/lib*/ld-linux-*" >/dev/null; then
    echo "Rondo is for systems with glibc; this one has musl (Alpine): use an image of Debian, Ubuntu or Fedora." >&2
    return 1
  fi
}

# _how_to_install PACKAGE...: the command of this system's package manager, or what Debian calls them.
_how_to_install() {
  local managers=(dnf pacman zypper nix-shell) i package
  local commands=("sudo dnf install" "sudo pacman -S" "sudo zypper install" "nix-shell -p")
  if command -v apt-get >/dev/null; then
    echo "  sudo apt-get install --no-install-recommends $*"
    return
  fi
  for i in "${!managers[@]}"; do
    command -v "${managers[i]}" >/dev/null || continue
    local names=() alike
    for package in "$@"; do
      read -ra alike <<<"${_ELSEWHERE[$package]:-$package $package $package $package}"
      names+=("${alike[i]//,/ }")
    done
    echo "  ${commands[i]} ${names[*]}"
    return
  done
  echo "There is no apt-get, dnf, pacman, zypper or nix-shell here; install their like by hand, then run this again."
}

# check_packages PACKAGE...: installs nothing; says what is missing, and fails if anything is.
check_packages() {
  local missing
  check_system || return 1
  _find_missing "$@"
  ((${#missing[@]})) || return 0
  echo "This needs what Debian 12 has in the packages: ${missing[*]}" >&2
  _how_to_install "${missing[@]}" >&2
  return 1
}

need_packages() {
  local missing
  check_system || return 1
  _find_missing "$@"
  ((${#missing[@]})) || return 0

  if ! command -v apt-get >/dev/null; then
    echo "This needs what Debian 12 has in the packages: ${missing[*]}" >&2
    _how_to_install "${missing[@]}" >&2
    return 1
  fi
  if ((EUID != 0)); then
    echo "This needs Debian's packages ${missing[*]}, and only root may install them:" >&2
    _how_to_install "${missing[@]}" >&2
    return 1
  fi
  echo "Installing Debian's packages: ${missing[*]}"
  # Another installation under way is waited for; the log is shown if it fails.
  local log
  log=$(mktemp)
  if ! _apt_install "${missing[@]}" >"$log" 2>&1 </dev/null; then
    cat "$log" >&2
    rm -f "$log"
    echo "apt-get could not install: ${missing[*]}" >&2
    return 1
  fi
  rm -f "$log"
  _find_missing "${missing[@]}"
  if ((${#missing[@]})); then
    echo "Installed, but what they should bring is not there: ${missing[*]}" >&2
    return 1
  fi
}

_apt_install() {
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -o DPkg::Lock::Timeout=300 &&
    apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"
}
