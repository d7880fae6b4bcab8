"""`clockgatectl tune plan` against a real daemon inside a network namespace, over real netlink and sysfs."""

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.daemon import SOURCE_ROOTS, Clockgated, clockgated, toml
from support.oldest import oldest_python
from support.tools import ROOT
from support.veth import Namespace, namespaces

pytestmark = pytest.mark.integration

LAB = """
summary = "a veth pair"
extends = "wan"
links = ["eth*"]
mtu_bytes = 9000
setsockopt_mib = 64
[sysctl]
"net.core.netdev_max_backlog" = 2000
"net.netfilter.nf_conntrack_nonsense" = 1
"""
GATHER = """
import json
from clockgated.tuning.codec import to_data
from clockgated.tuning.ethtool import Ethtool
from clockgated.tuning.ethtool_messages import Command
from clockgated.tuning.links import read_links
from clockgated.tuning.roots import Roots

with Ethtool() as ethtool:
    refused = ethtool.set(Command.CHANNELS_SET, "multi", [("rx", 99)])
    assert ethtool.set(Command.CHANNELS_SET, "multi", [("rx", 2), ("tx", 3)]) is None
    assert ethtool.get(Command.RINGS_GET, "multi").is_unsupported
    assert ethtool.get(Command.CHANNELS_GET, "absent").code == 19
print(json.dumps({
    "refused": refused.code,
    "links": {
        link.name: {
            "kind": link.kind, "mtu": link.mtu, "is_up": link.is_up, "mac": link.link_id.permanent_mac,
            "channels": to_data(link.channels), "features": sorted(link.features.active), "speed": link.speed_mbps,
            "qdiscs": to_data(link.qdiscs), "addresses": link.addresses, "phc": link.phc_index, "master": link.master,
            "queues": len(link.queues), "counters": [one.name for one in link.counters],
        }
        for link in read_links(Roots(), ["*"])
    },
}))
"""


@dataclass(frozen=True)
class Planned:
    """A daemon in one of two joined namespaces."""

    inside: Namespace
    daemon: Clockgated

    def plan(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Exit code and document of `tune plan --json`."""
        ran = self.daemon.ctl("tune", "plan", "--json", *words)
        assert ran.stdout, ran.stderr
        return ran.returncode, json.loads(ran.stdout)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planned]:
    folder = tmp_path_factory.mktemp("tuning")
    (folder / "profiles").mkdir()
    (folder / "profiles/lab.toml").write_text(LAB)
    tuning = f'[tuning]\nprofile = "lab"\nprofile_folder = "{folder}/profiles"\npeers = ["10.77.0.2"]\n'
    with namespaces() as (inside, _):
        # `python` inside the namespace: the daemon sees its links, its /sys and its /proc/sys/net.
        python = folder / "python"
        python.write_text(f'#!/bin/sh\nexec ip netns exec {inside.name} {sys.executable} "$@"\n')
        python.chmod(0o755)
        with clockgated(folder / "run", toml(folder / "run", extra=tuning), python=python) as daemon:
            yield Planned(inside, daemon)


def by_key(changes: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {one["knob"]["key"]: one for one in changes}


def test_buffers_follow_the_path_that_was_measured_and_the_one_that_was_told(planned: Planned) -> None:
    code, near = planned.plan()
    assert code == 1
    assert "net.ipv4.tcp_rmem" not in by_key(near["changes"])
    assert all("no gain is to be expected" in bound["sentence"] for bound in near["bounds"])
    assert {bound["link"] for bound in near["bounds"]} == {"eth0", "eth1"}
    _, far = planned.plan("--rtt-ms", "100")
    change = by_key(far["changes"])["net.ipv4.tcp_wmem"]
    assert change["wanted"].split()[:2] == change["found"].split()[:2]
    assert int(change["wanted"].split()[2]) > int(change["found"].split()[2])
    assert {"rtt", "link_bps", "need"} <= {one["name"] for one in change["why"]["inputs"]}
    assert all(bound["gain"] > 1.02 for bound in far["bounds"])


def test_the_plan_is_about_the_namespace_of_the_daemon(planned: Planned) -> None:
    _, plan = planned.plan()
    there = planned.inside.run("stat", "-L", "-c", "%i", "/proc/self/ns/net").stdout
    assert plan["netns_inode"] == int(there)
    assert plan["netns_inode"] != os.stat("/proc/self/ns/net").st_ino  # noqa: PTH116
    assert {one["knob"]["link"]["name"] for one in plan["changes"] if one["knob"]["link"]} == {"eth0", "eth1"}


def test_keys_of_the_node_cannot_be_had_in_a_namespace(planned: Planned) -> None:
    _, plan = planned.plan()
    refused = {one["subject"]: one["code"] for one in plan["refusals"]}
    assert refused["net.core.rmem_max"] == "REFUSAL_CODE_READ_ONLY"
    assert refused["net.core.netdev_max_backlog"] == "REFUSAL_CODE_UNSUPPORTED"
    assert refused["net.netfilter.nf_conntrack_nonsense"] == "REFUSAL_CODE_PENDING"


def test_the_hash_moves_when_the_node_does_and_comes_back_with_it(planned: Planned) -> None:
    key = "net.ipv4.tcp_slow_start_after_idle"
    _, first = planned.plan()
    assert by_key(first["changes"])[key]["found"] == "1"
    assert planned.plan()[1]["plan_hash"] == first["plan_hash"]
    planned.inside.run("sysctl", "-w", f"{key}=0")
    _, moved = planned.plan()
    assert key not in by_key(moved["changes"])
    assert moved["plan_hash"] != first["plan_hash"]
    planned.inside.run("sysctl", "-w", f"{key}=1")
    assert planned.plan()[1]["plan_hash"] == first["plan_hash"]


def test_a_plan_changes_nothing(planned: Planned) -> None:
    def state() -> list[str]:
        commands = (["ip", "-d", "link"], ["tc", "qdisc"], ["sysctl", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"])
        return [planned.inside.run(*command).stdout for command in commands]

    before = state()
    planned.plan("--rtt-ms", "100")
    assert state() == before


def test_a_person_gets_reasons_and_the_next_step(planned: Planned) -> None:
    ran = planned.daemon.ctl("tune", "plan")
    assert ran.returncode == 1
    assert "eth0 mtu: 1500 -> 9000   [link, undone unless confirmed]" in ran.stdout
    assert "clockgatectl tune apply " in ran.stdout
    unknown = planned.daemon.ctl("tune", "plan", "--profile", "labb")
    assert unknown.returncode == 2
    assert "labb.toml; built in are auto, none, tcp, roce, ib, wan" in unknown.stderr


def test_the_commands_of_the_manual_answer(planned: Planned) -> None:
    manual = (ROOT / "docs/tuning.md").read_text()
    commands = re.findall(r"^clockgatectl (tune plan.*)$", manual, re.MULTILINE)
    assert len(commands) >= 3
    for command in commands:
        assert planned.daemon.ctl(*command.split()).returncode in (0, 1, 4, 5), command


def test_profile_none_is_clean(planned: Planned) -> None:
    assert planned.plan("--profile", "none")[0] == 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("libraries", ["oldest", "current"])
def test_links_are_read_over_netlink_with_either_library(libraries: str) -> None:
    python = oldest_python() if libraries == "oldest" else Path(sys.executable)
    with namespaces() as (inside, _):
        for words in (
            "link add multi numrxqueues 4 numtxqueues 4 type veth peer name other",
            "link set multi mtu 1400 up", "link set other up", "link add br0 type bridge", "link set other master br0",
        ):  # fmt: skip
            inside.run("ip", *words.split())
        ran = inside.run("env", f"PYTHONPATH={SOURCE_ROOTS}", str(python), "-W", "error", "-c", GATHER)
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert seen["refused"] == 22
    multi = seen["links"]["multi"]
    assert (multi["kind"], multi["mtu"], multi["is_up"], multi["mac"], multi["phc"]) == ("veth", 1400, True, None, None)
    assert multi["channels"] == {"combined": None, "combined_max": None, "rx": 2, "rx_max": 4, "tx": 3, "tx_max": 4}
    assert multi["speed"] == 10_000
    assert "tx-tcp-segmentation" in multi["features"]
    assert "multi.rx_dropped" in multi["counters"]
    assert {"kind": "noqueue", "parent": "root", "handle": "0:0"} in multi["qdiscs"]
    assert seen["links"]["other"]["master"] == "br0"
    assert "10.77.0.1/24" in seen["links"]["eth0"]["addresses"]
    assert "lo" not in seen["links"]
