#!/bin/sh
# Unpack the time daemons of other Debian and Ubuntu releases, each with the libraries it was built against:
#
#     fetch-release-tools.sh FOLDER SUITE...        SUITE: bookworm trixie sid jammy noble
#
# Tests need chronyd and ptp4l of every supported version to accept what the planner writes. The archives come through
# apt with a state of its own below FOLDER (the host's apt lists, cache and settings are neither read nor changed), so
# signatures are checked as usual. FOLDER/SUITE/bin then holds one start script a program, which runs it under the
# release's own dynamic loader: its C library may be newer than the host's.
# DEBIAN_MIRROR and UBUNTU_MIRROR name the archives; the former defaults to the host's own. Exit 1 when an archive
# cannot be had.
set -eu
[ $# -ge 2 ] || {
    echo "usage: fetch-release-tools.sh FOLDER SUITE..." >&2
    exit 2
}
for tool in apt-get apt-cache dpkg; do
    command -v "$tool" >/dev/null || {
        echo "fetch-release-tools: no $tool on this machine; it works on Debian and Ubuntu only" >&2
        exit 1
    }
done
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
architecture=$(dpkg --print-architecture)
# The host's own mirror, or another one; Ubuntu's archive has to be named.
debian_mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(SITE)' | grep '/debian$' | head -n 1)}
ubuntu_mirror=${UBUNTU_MIRROR:-}
debian_keys=/usr/share/keyrings/debian-archive-keyring.gpg
ubuntu_keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg

# A private apt for the suite $1: its lists, cache, status and sources live below $folder/.apt.
private_apt() {
    suite=$1
    apt=$folder/.apt/$suite
    mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/etc/apt.conf.d" "$apt/etc/preferences.d" "$apt/download"
    : >"$apt/status"
    case $suite in
    jammy | noble) source="deb [signed-by=$ubuntu_keys] ${ubuntu_mirror:?name an archive of $suite} $suite main universe" ;;
    *) source="deb [signed-by=$debian_keys] ${debian_mirror:?name a mirror of $suite} $suite main" ;;
    esac
    echo "$source" >"$apt/sources.list"
    # A mirror that lags serves signed but expired lists; only old programs could come of it, and these are for tests.
    cat >"$apt/apt.conf" <<EOF
Acquire::Check-Valid-Until "false";
APT::Architecture "$architecture";
APT::Architectures { "$architecture"; };
Acquire::Languages "none";
Acquire::Retries "2";
APT::Sandbox::User "$(id -un)";
Dir::State "$apt";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
Dir::Etc "$apt/etc";
Dir::Etc::sourcelist "$apt/sources.list";
EOF
    APT_CONFIG=$apt/apt.conf
    export APT_CONFIG
    apt-get -qq update
}

# The packages $@ and the libraries below them. Only libraries are followed: nothing here is installed or configured.
with_libraries() {
    wanted=" $* "
    todo="$*"
    while [ -n "$todo" ]; do
        found=
        for package in $todo; do
            for library in $(apt-cache depends --no-recommends --no-suggests --no-conflicts --no-breaks \
                --no-replaces --no-enhances "$package" | sed -n 's/^ *|*\(Pre\)*Depends: \(lib[^ ]*\|zlib1g\)$/\2/p'); do
                case $wanted in
                *" $library "*) ;;
                *) wanted="$wanted$library " found="$found $library" ;;
                esac
            done
        done
        todo=$found
    done
    echo "$wanted"
}

# One start script for each program below the unpacked root $1.
start_scripts() {
    root=$1
    loader=$(find "$root" -name 'ld-linux*.so.*' | sort | head -n 1)
    libraries=$(find "$root" -name 'lib*.so*' -exec dirname {} \; | sort -u | paste -sd :)
    mkdir -p "$root/bin"
    for program in "$root"/usr/sbin/* "$root"/usr/bin/chronyc; do
        script=$root/bin/${program##*/}
        # Some copies of ld.so rewrite nothing of argv[0], and the daemons name themselves in messages by it.
        printf '#!/bin/sh\nexec "%s" --library-path "%s" --argv0 "%s" "%s" "$@"\n' \
            "$loader" "$libraries" "${program##*/}" "$program" >"$script"
        chmod 755 "$script"
    done
}

unpack() {
    suite=$1
    root=$folder/$suite
    rm -rf "$root"
    mkdir -p "$root"
    # shellcheck disable=SC2046
    (cd "$apt/download" && rm -f ./*.deb && apt-get -qq download $(with_libraries chrony linuxptp))
    for archive in "$apt"/download/*.deb; do dpkg -x "$archive" "$root"; done
    start_scripts "$root"
    { "$root/bin/chronyd" -v && "$root/bin/ptp4l" -v; } >"$root/versions.new"
    mv "$root/versions.new" "$root/versions"
    # The lists alone are some 100 MB a suite.
    rm -rf "$apt"
}

# Debian 13 ships Ubuntu's archive keys, which makes the two Ubuntu suites verifiable from a Debian machine.
ubuntu_keyring() {
    [ -e "$ubuntu_keys" ] && return
    ubuntu_keys=$folder/.apt/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg
    [ -e "$ubuntu_keys" ] && return
    private_apt trixie
    (cd "$apt/download" && apt-get -qq download ubuntu-keyring)
    dpkg -x "$apt"/download/ubuntu-keyring_*.deb "$folder/.apt/keys"
    rm -rf "$apt"
}

for wanted_suite in "$@"; do
    if [ -e "$folder/$wanted_suite/versions" ]; then continue; fi
    # A half-made folder would be taken for a whole one by the next run.
    trap 'rm -rf "${folder:?}/$wanted_suite"
        echo "fetch-release-tools: cannot fetch the packages of $wanted_suite; see the messages above" >&2; exit 1' EXIT
    case $wanted_suite in jammy | noble) ubuntu_keyring ;; esac
    private_apt "$wanted_suite"
    unpack "$wanted_suite"
    trap - EXIT
    echo "fetch-release-tools: $wanted_suite: $(paste -sd ' ' "$folder/$wanted_suite/versions")"
done
