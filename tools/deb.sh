#!/usr/bin/env bash
# Makes Debian's packages in build/deb: librondo0.2, librondo-dev, rondo (programs) and python3-rondo, of what
# tools/install.sh and tools/wheel.sh make here.
#   [DEBFULLNAME=NAME] [DEBEMAIL=ADDRESS] tools/deb.sh
# DEBFULLNAME and DEBEMAIL name the maintainer. Without them it is the author of the last commit.
set -euo pipefail
cd "$(dirname "$0")/.."
if (($#)); then
  sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
source tools/lib/build.sh
need_packages debhelper dh-python dpkg-dev help2man "${BUILD_PACKAGES[@]}" python3 python3-venv

version=$(sed -n 's/^#define RONDO_VERSION "\(.*\)"$/\1/p' ring/include/rondo/rondo.h)
soname=$(sed -n 's/^RONDO_SONAME = "\(.*\)"$/\1/p' tools/bazel/version.bzl)
abi=${soname#librondo.so.}
maintainer="${DEBFULLNAME:-$(git log -1 --format=%an)} <${DEBEMAIL:-$(git log -1 --format=%ae)}>"
triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
source=build/deb/rondo-$version
made=$source/files
rm -rf build/deb
mkdir -p "$source/debian/source" "$made"

# --- the files
DESTDIR=$made LIBDIR=lib/$triplet tools/install.sh /usr
rm -r "$made/usr/share/doc"
tools/wheel.sh
packages=$made/usr/lib/python3/dist-packages
mkdir -p "$packages"
.venv-wheel/bin/python -m zipfile -e build/wheel/*.whl "$packages"
# The engine and the programs are those of the other packages.
native=$packages/rondo/_native
rm -r "$native"/rondo-* "$native/mpi" "$native"/librondo_c.so.*
mkdir -p "$made/usr/share/man/man1"
for program in "$made"/usr/bin/*; do
  help2man --no-info --version-string="$version" --name="$(basename "$program") of Rondo" --output="$made/usr/share/man/man1/$(basename "$program").1" "$program"
done

# --- debian/
cp tools/deb/{rules,copyright,*.install,*.lintian-overrides,*.manpages} "$source/debian"
mv "$source/debian/librondo.install" "$source/debian/librondo$abi.install"
sed -e "s|@ABI@|$abi|g" -e "s|@MAINTAINER@|$maintainer|g" tools/deb/control.in >"$source/debian/control"
echo "usr/lib/$triplet/librondo_c.so.$abi ${native#"$made/"}/librondo_c.so.$abi" >"$source/debian/python3-rondo.links"
echo "3.0 (native)" >"$source/debian/source/format"
cat >"$source/debian/changelog" <<ENTRY
rondo ($version) unstable; urgency=medium

  * What changed stands in CHANGELOG.md of the sources.

 -- $maintainer  $(git log -1 --format=%cD)
ENTRY
(cd "$source" && dpkg-buildpackage --build=binary --no-sign --no-check-builddeps)
ls -l build/deb/*.deb
