#!/bin/sh
# `make deb`: build the package, check it, and test it on booted systems:
#
#     make-deb.sh PYTHON FOLDER SUITE...
#
# PYTHON has pytest and this tree on its path; FOLDER receives the package; SUITE: bookworm trixie, and noble where
# Ubuntu's archive answers. All suites are tested at the same time, since such tests mostly wait; the full output of
# each is in build/deb/SUITE.log. Needs root. What is missing of the host's tools is installed where apt is.
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
say "making roots of $* beside the build; minutes when they are made for the first time"
"$python" -m support.debian_root --bare "$@" >"$logs/roots.log" 2>&1 &
roots=$!
sh packaging/build-deb.sh "$folder"
wait $roots || {
    cat "$logs/roots.log" >&2
    say "no roots to test in"
    exit 1
}
say "testing on $*"
for suite in "$@"; do
    (
        code=0
        CLOCKGATE_DEBIAN=$suite "$python" -m support.debian_root "$suite" >"$logs/$suite.log" 2>&1 &&
            CLOCKGATE_DEBIAN=$suite "$python" -m pytest -q -p no:cacheprovider --durations=5 tests/deb \
                >>"$logs/$suite.log" 2>&1 || code=$?
        echo $code >"$logs/$suite.code"
    ) &
done
wait
failed=
for suite in "$@"; do
    echo "--- $suite"
    cat "$logs/$suite.log"
    [ "$(cat "$logs/$suite.code")" = 0 ] || failed="$failed $suite"
done
[ -z "$failed" ] || {
    say "tests failed on$failed; see above"
    exit 1
}
say "$(ls "$folder"/clockgate_*_all.deb) passed on $* after $(($(date +%s) - began)) s"
