#!/bin/sh
# Build the Debian package in a Debian root of its own, so that the host only needs mmdebstrap:
#
#     build-deb.sh [--quick] FOLDER
#
# FOLDER then holds clockgate_VERSION_all.deb, one file for Debian 12, Debian 13 and Ubuntu 24.04. Unless --quick is
# given it is built twice, in another folder, time zone, locale and under another umask, and both files must have the
# same bytes; the AppArmor profile must compile; and lintian must find neither errors nor warnings.
# Needs root. The root to build in is kept below .cache/roots; DEBIAN_MIRROR names the archive that it comes from. Exit 1
# when the package cannot be built, or is not as it must be.
set -eu
quick=
[ "${1:-}" != --quick ] || {
    quick=yes
    shift
}
[ $# = 1 ] || {
    echo "usage: build-deb.sh [--quick] FOLDER" >&2
    exit 2
}
mkdir -p "$1"
folder=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
roots=$PWD/.cache/roots
root=$roots/build
# Debian 13's debhelper puts units below /usr, as its lintian wants; what it makes of plain Python runs on all three.
suite=trixie
packages=apparmor,debhelper,dh-apparmor,dh-python,lintian,pybuild-plugin-pyproject,python3-all,python3-setuptools
# Tests on Ubuntu know its archive by these keys.
packages=$packages,ubuntu-archive-keyring
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
# All that the package is made of.
sources="CHANGELOG.md LICENSE README.md daemon docs packaging protos pyproject.toml setup.cfg trainer"

say() { echo "build-deb: $*" >&2; }

[ "$(id -u)" = 0 ] || {
    say "needs root: it makes a Debian root to build in"
    exit 1
}
command -v mmdebstrap >/dev/null || {
    say "no mmdebstrap on this machine: apt-get install mmdebstrap"
    exit 1
}

make_root() {
    wanted="$suite $packages"
    [ "$(cat "$roots/build.packages" 2>/dev/null)" != "$wanted" ] || return 0
    say "making a root of $suite with the build tools (a minute or two)"
    rm -rf "$root" "$roots/build.packages"
    mmdebstrap --quiet --variant=apt --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Retries "3"' \
        --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/man/*' --include="$packages" "$suite" "$root" "$mirror"
    echo "$wanted" >"$roots/build.packages"
}

# Copy the tree, which somebody may be working in: both builds are of the same files.
export_tree() {
    rm -rf "$root/srv/tree"
    mkdir -p "$root/srv/tree"
    # shellcheck disable=SC2086  # a list of names
    tar -c --exclude=__pycache__ --exclude='*.egg-info' $sources | tar -x -C "$root/srv/tree"
    cp -a "$root/srv/tree/packaging/debian" "$root/srv/tree/debian"
}

# Build in the folder $1 of the root, in an environment of the other words.
build() {
    place=$1
    shift
    rm -rf "${root:?}/$place"
    mkdir -p "$root/$place"
    cp -a "$root/srv/tree" "$root/$place/clockgate"
    # -d: of build-essential only make and dpkg-dev are used, and nothing is compiled.
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/nonexistent "$@" sh -ec \
        "cd /$place/clockgate && dpkg-buildpackage -us -uc -b -d" >"$root/$place/log" 2>&1 || {
        tail -n 60 "$root/$place/log" >&2
        say "dpkg-buildpackage failed, see above and $root/$place/log"
        exit 1
    }
}

mkdir -p "$roots"
exec 9>"$roots/build.lock"
flock 9
make_root
export_tree
if [ -n "$quick" ]; then
    say "building"
    build srv/one TZ=UTC LC_ALL=C.UTF-8
else
    say "building twice, in different places"
    (umask 027 && build srv/two/deeper TZ=Asia/Kathmandu LC_ALL=C) &
    build srv/one TZ=UTC LC_ALL=C.UTF-8
    wait $!
fi
made=$(basename "$root"/srv/one/clockgate_*_all.deb)
if [ -z "$quick" ]; then
    cmp "$root/srv/one/$made" "$root/srv/two/deeper/$made" || {
        say "two builds of the same tree differ: $root/srv/one/$made, $root/srv/two/deeper/$made"
        exit 1
    }
    say "both have the same bytes; asking apparmor_parser and lintian"
    # It says that there is no AppArmor to load into, which is so and does not matter.
    words=$(chroot "$root" apparmor_parser --skip-kernel-load --skip-cache \
        /srv/tree/packaging/apparmor/clockgate-chronyd 2>&1) || {
        say "the AppArmor profile cannot be compiled: $words"
        exit 1
    }
    chroot "$root" lintian --allow-root --fail-on error,warning --tag-display-limit 0 "/srv/one/$made" || {
        say "lintian is not content, see above; its words on a tag: lintian-explain-tags TAG"
        exit 1
    }
fi
rm -f "$folder"/clockgate_*_all.deb
cp "$root/srv/one/$made" "$folder/"
echo "$folder/$made"
