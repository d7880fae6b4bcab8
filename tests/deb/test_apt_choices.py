"""What apt would do on hosts with this or that time daemon: installing the package never removes or stops one."""

import subprocess
from functools import cache

import pytest
from support.nspawn import a_root, the_package

pytestmark = [pytest.mark.nspawn, pytest.mark.timeout(300)]

DAEMONS = ("systemd-timesyncd", "ntpsec", "chrony")
# One after the other in one root, from the smallest host on. Only asking (-s) is about the package; apt's default is to
# follow Recommends, which this root turns off.
SCRIPT = """
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
quietly() { "$@" >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }; }
ask() { echo "=== $1"; apt-get -s -o APT::Install-Recommends=true install /mnt/clockgate.deb; }
quietly apt-get purge -y chrony linuxptp python3-grpcio python3-protobuf python3-pyroute2 python3-systemd
ask none
for daemon in systemd-timesyncd ntpsec chrony; do
    quietly apt-get install -y --no-install-recommends $daemon
    ask $daemon
done
"""


@cache
def answers() -> dict[str, list[str]]:
    """The lines of `apt-get -s install` by the time daemon of the host, "none" for a host without."""
    line = [
        "systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--pipe", "--volatile=overlay",
        "--drop-capability=CAP_SYS_TIME", "--resolv-conf=copy-host",
        f"--bind-ro={the_package()}:/mnt/clockgate.deb", f"--directory={a_root(with_package=False)}",
        "/bin/sh", "-ec", SCRIPT,
    ]  # fmt: skip
    ran = subprocess.run(line, capture_output=True, text=True, check=False, timeout=240, stdin=subprocess.DEVNULL)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-1000:]
    parts = (part.splitlines() for part in ran.stdout.split("=== ")[1:])
    return {lines[0]: lines[1:] for lines in parts}


@pytest.mark.parametrize("daemon", DAEMONS)
def test_a_host_keeps_the_time_daemon_that_it_has(daemon: str) -> None:
    said = answers()[daemon]
    assert [line for line in said if line.startswith("Inst clockgate ")]
    assert not [line for line in said if line.startswith(("Remv ", "Purg "))]
    assert not [line for line in said if line.startswith(tuple(f"Inst {one} " for one in DAEMONS))]


def test_a_host_without_one_gets_chrony_and_linuxptp() -> None:
    chosen = {line.split()[1] for line in answers()["none"] if line.startswith("Inst ")}
    assert {"clockgate", "chrony", "linuxptp", "python3-grpcio", "python3-pyroute2"} <= chosen
    assert not [line for line in answers()["none"] if line.startswith("Remv ")]
