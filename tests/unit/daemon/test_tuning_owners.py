from pathlib import Path

from clockgated.tuning.facts import GOVERNOR
from clockgated.tuning.model import OwnerKind
from clockgated.tuning.owners import read_owners, running_programs, running_writers
from support.tuning_tree import Tree

TUNED = "[main]\nsummary=x\ninclude=base\n[sysctl]\nnet.core.somaxconn=>2048\n[cpu]\ngovernor=performance\n"


def tree_with_tuned(folder: Path) -> Tree:
    tree = Tree(folder)
    tree.process(10, "tuned", cmdline="/usr/bin/python3\0-Es\0/usr/sbin/tuned\0-l\0")
    tree.write("root/etc/tuned/active_profile", "network-throughput\n")
    tree.write("root/usr/lib/tuned/network-throughput/tuned.conf", TUNED)
    tree.write(
        "root/usr/lib/tuned/base/tuned.conf",
        "[sysctl]\nnet.ipv4.tcp_rmem=4096\t87380\t16777216\nnet.core.somaxconn=1\n",
    )
    return tree


def test_tuned_is_named_with_its_profile_and_what_it_includes(tmp_path: Path) -> None:
    owners = read_owners(tree_with_tuned(tmp_path).roots)
    assert owners.tuned_profile == "network-throughput"
    rmem = owners.tuned_sysctls["net.ipv4.tcp_rmem"]
    assert (rmem.kind, rmem.value) == (OwnerKind.TUNED, "4096 87380 16777216")
    assert "tuned profile base (/usr/lib/tuned/base/tuned.conf)" in rmem.place
    # The profile itself wins over what it includes, and its sign for "only raise" is no part of the value.
    assert owners.tuned_sysctls["net.core.somaxconn"].value == "2048"
    assert owners.tuned_sysctls[GOVERNOR].value == "performance"


def test_a_profile_in_etc_hides_the_packages(tmp_path: Path) -> None:
    tree = tree_with_tuned(tmp_path)
    tree.write("root/etc/tuned/network-throughput/tuned.conf", "[sysctl]\nvm.swappiness=1\n")
    assert set(read_owners(tree.roots).tuned_sysctls) == {"vm.swappiness"}


def test_a_tuned_that_does_not_run_owns_nothing(tmp_path: Path) -> None:
    tree = tree_with_tuned(tmp_path)
    (tmp_path / "proc/10/comm").write_text("bash")
    (tmp_path / "proc/10/cmdline").write_text("bash\0")
    assert read_owners(tree.roots).tuned_profile is None
    assert read_owners(tree.roots).tuned_sysctls == {}


def test_profiles_that_include_each_other_end(tmp_path: Path) -> None:
    tree = tree_with_tuned(tmp_path)
    tree.write("root/usr/lib/tuned/base/tuned.conf", "[main]\ninclude=network-throughput\n")
    assert read_owners(tree.roots).tuned_profile == "network-throughput"


def test_networkmanager_owns_what_its_connection_sets(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.process(11, "NetworkManager")
    tree.write("root/run/NetworkManager/devices/2", "[device]\nmanaged=full\nconnection-uuid=u-1\n")
    tree.write("root/run/NetworkManager/devices/3", "[device]\nmanaged=full\n")
    tree.write(
        "root/etc/NetworkManager/system-connections/lan.nmconnection",
        "[connection]\nid=lan\nuuid=u-1\n[ethernet]\nmtu=9000\n[ethtool]\nring-rx=4096\n",
    )
    owned = read_owners(tree.roots).network_manager
    assert set(owned) == {"2.mtu", "2.ethtool"}
    assert owned["2.mtu"].value == "9000"
    assert owned["2.mtu"].place == "/etc/NetworkManager/system-connections/lan.nmconnection"


def test_a_file_that_is_no_ini_sets_nothing(tmp_path: Path) -> None:
    tree = tree_with_tuned(tmp_path)
    tree.write("root/usr/lib/tuned/network-throughput/tuned.conf", b"\xff\x00[[[\n=\n")
    assert read_owners(tree.roots).tuned_sysctls == {}


def test_running_writers_are_named(tmp_path: Path) -> None:
    tree = tree_with_tuned(tmp_path)
    tree.process(12, "irqbalance")
    assert [one.place for one in running_writers(tree.roots)] == [
        "tuned profile network-throughput",
        "irqbalance.service",
    ]
    assert read_owners(tree.roots).irqbalance_runs
    assert "tuned" in running_programs(tree.roots)
