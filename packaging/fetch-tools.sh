#!/bin/sh
# Unpack Debian packages into a folder without installing them:  fetch-tools.sh FOLDER PACKAGE...
#
# Installing chrony would remove the host's own time daemon and start another. Tests and the demo only need the
# programs, so the archives are downloaded (no root needed) and unpacked below FOLDER; the host stays as it is.
# Exit 1 when a package cannot be had or a program in it cannot run for want of a library.
set -eu
folder=$1
shift
command -v apt-get >/dev/null && command -v dpkg >/dev/null || {
    echo "fetch-tools: no apt-get or dpkg on this machine; install $* by hand" >&2
    exit 1
}
mkdir -p "$folder/.archives"
# apt's download helper user must be able to write there, or apt warns.
cd "$folder/.archives"
for package in "$@"; do
    if [ -e "$package.done" ]; then continue; fi
    if ! apt-get -qq download "$package" 2>download.log; then
        # Lists may be absent on a fresh machine; only root can fetch them.
        { [ "$(id -u)" = 0 ] && apt-get -qq update >/dev/null && apt-get -qq download "$package"; } 2>download.log || {
            cat download.log >&2
            echo "fetch-tools: cannot download $package; run 'apt-get update' as root and try again" >&2
            exit 1
        }
    fi
    dpkg -x "$package"_*.deb ..
    touch "$package.done"
done
cd ..
for program in usr/sbin/* usr/bin/*; do
    if [ -x "$program" ] && ldd "$program" 2>/dev/null | grep 'not found' >&2; then
        echo "fetch-tools: $program lacks a shared library named above; install it and try again" >&2
        exit 1
    fi
done
