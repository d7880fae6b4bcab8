#!/bin/sh
# `make deb`: build the package, check it, and test it on booted systems:
#
#     make-deb.sh PYTHON FOLDER SUITE...
#
# PYTHON has pytest and this tree on its path; FOLDER receives the package; SUITE: bookworm trixie noble. On noble
# (Ubuntu 24.04), where its archive answers, the package is only installed, started and asked. All suites are tested at
# the same time, since such tests mostly wait; the full output of each is in build/deb/SUITE.log. Needs root. What is
# missing of the host's tools is installed where apt is.
set -eu
[ $# -ge 3 ] || {
    echo "usage: make-deb.sh PYTHON FOLDER SUITE..." >&2
    exit 2
}
python=$1 folder=$2
shift 2
cd "$(dirname "$0")/.."
logs=build/deb
mkdir -p "$logs"

say() { echo "make-deb: $*" >&2; }

lacking=
for need in mmdebstrap:mmdebstrap systemd-nspawn:systemd-container ip:iproute2; do
    command -v "${need%:*}" >/dev/null || lacking="$lacking ${need#*:}"
done
[ -z "$lacking" ] || {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || {
        say "install these, as root:$lacking"
        exit 1
    }
    say "installing$lacking"
    apt-get -qq update
    # shellcheck disable=SC2086  # a list of names
    apt-get -qq install -y --no-install-recommends $lacking >/dev/null
}

began=$(date +%s)
debian='' ubuntu=''
for suite in "$@"; do
    case $suite in
    noble) ubuntu=$suite ;;
    *) debian="$debian $suite" ;;
    esac
done
[ -z "$ubuntu" ] || "$python" -c 'import urllib.request; urllib.request.urlopen(
    "http://archive.ubuntu.com/ubuntu/dists/noble/InRelease", timeout=15)' 2>/dev/null || {
    say "Ubuntu 24.04 is not tried: its archive does not answer"
    ubuntu=
}
say "making roots of$debian beside the build; minutes when they are made for the first time"
for suite in $debian; do
    "$python" -m support.debian_root --bare "$suite" || exit 1
done >"$logs/roots.log" 2>&1 &
roots=$!
sh packaging/build-deb.sh "$folder"
wait $roots || {
    cat "$logs/roots.log" >&2
    say "no roots to test in"
    exit 1
}
say "testing on$debian $ubuntu"
for suite in $debian $ubuntu; do
    (
        code=0
        tests=tests/deb chosen=
        [ "$suite" != noble ] || tests=tests/deb/test_nspawn_package.py chosen="installs_it or an_upgrade or grpcurl or exposure"
        CLOCKGATE_DEBIAN=$suite "$python" -m support.debian_root "$suite" >"$logs/$suite.log" 2>&1 &&
            CLOCKGATE_DEBIAN=$suite "$python" -m pytest -q -p no:cacheprovider --durations=5 ${chosen:+-k "$chosen"} \
                $tests >>"$logs/$suite.log" 2>&1 || code=$?
        echo $code >"$logs/$suite.code"
    ) &
done
wait
failed=
for suite in $debian $ubuntu; do
    echo "--- $suite"
    cat "$logs/$suite.log"
    [ "$(cat "$logs/$suite.code")" = 0 ] || failed="$failed $suite"
done
[ -z "$failed" ] || {
    say "tests failed on$failed; see above"
    exit 1
}
say "$(ls "$folder"/clockgate_*_all.deb) passed on$debian $ubuntu after $(($(date +%s) - began)) s"
