"""Knobs that are files, on a fake tree."""

import os
from pathlib import Path

import pytest
from clockgated.tuning.file_hand import FileHand
from clockgated.tuning.model import Area, Knob
from clockgated.tuning.namespace import lives
from clockgated.tuning.outcome import Trouble, TroubleCode
from clockgated.tuning.roots import Roots
from support.tuning import put, sysctl


def hand_below(root: Path) -> FileHand:
    return FileHand(Roots(root / "proc", root / "sys", root))


def trouble(found: object) -> TroubleCode:
    assert isinstance(found, Trouble), found
    return found.code


def test_tabs_and_blanks_are_one_value(tmp_path: Path) -> None:
    # redhat-performance/tuned 184
    put(tmp_path, "net.ipv4.tcp_rmem", "4096 131072 6291456")

    assert hand_below(tmp_path).read(sysctl("net.ipv4.tcp_rmem")) == "4096 131072 6291456"


def test_a_value_is_written_by_one_system_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(tmp_path, "vm.nr_hugepages", "0")
    real, written = os.write, list[bytes]()

    def noted(descriptor: int, data: bytes) -> int:
        written.append(data)
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", noted)

    assert hand_below(tmp_path).write(sysctl("vm.nr_hugepages"), "16") is None
    assert written == [b"16\n"]
    assert file.read_text() == "16\n"


def test_a_value_that_is_taken_in_part_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "vm.nr_hugepages", "0")
    monkeypatch.setattr(os, "write", lambda _, data: len(data) - 1)

    assert trouble(hand_below(tmp_path).write(sysctl("vm.nr_hugepages"), "16")) is TroubleCode.FAILED


def test_a_key_whose_module_is_not_loaded_is_gone(tmp_path: Path) -> None:
    hand = hand_below(tmp_path)

    assert trouble(hand.read(sysctl("net.netfilter.nf_conntrack_max"))) is TroubleCode.GONE
    assert trouble(hand.write(sysctl("net.netfilter.nf_conntrack_max"), "1")) is TroubleCode.GONE
    assert not (tmp_path / "proc").exists()


@pytest.mark.parametrize("key", ["", "..", "../../etc/passwd", "net/../../../x", "a\0b"])
@pytest.mark.parametrize("area", [Area.SYSCTL, Area.SYSFS])
def test_a_key_leads_nowhere_else(tmp_path: Path, area: Area, key: str) -> None:
    hand = hand_below(tmp_path)

    assert isinstance(hand.read(Knob(0, area, key)), Trouble)
    assert isinstance(hand.write(Knob(0, area, key), "1"), Trouble)


def test_a_dot_in_a_name_is_spelled_as_a_slash(tmp_path: Path) -> None:
    path = tmp_path / "proc/sys/net/ipv4/conf/eth0.100/rp_filter"
    path.parent.mkdir(parents=True)
    path.write_text("2\n")

    assert hand_below(tmp_path).read(sysctl("net.ipv4.conf.eth0/100.rp_filter")) == "2"


def test_an_interrupt_is_found_by_its_action_after_it_got_another_number(tmp_path: Path) -> None:
    for number, action in ((31, "eth0-TxRx-0"), (32, "eth0-TxRx-1"), (99, "")):
        folder = tmp_path / f"proc/irq/{number}"
        (folder / action).mkdir(parents=True)
        (folder / "smp_affinity_list").write_text(f"{number}\n")
    hand, knob = hand_below(tmp_path), Knob(0, Area.IRQ, "eth0-TxRx-1")
    assert hand.read(knob) == "32"

    (tmp_path / "proc/irq/32").rename(tmp_path / "proc/irq/57")

    assert hand.write(knob, "3") is None
    assert (tmp_path / "proc/irq/57/smp_affinity_list").read_text() == "3\n"


def test_interrupts_that_cannot_be_told_apart_are_left_alone(tmp_path: Path) -> None:
    for number in (31, 32):
        (tmp_path / f"proc/irq/{number}/eth0").mkdir(parents=True)
    hand = hand_below(tmp_path)

    assert trouble(hand.read(Knob(0, Area.IRQ, "eth0"))) is TroubleCode.FAILED
    assert trouble(hand.read(Knob(0, Area.IRQ, "eth1"))) is TroubleCode.GONE


def test_whether_a_network_namespace_lives(tmp_path: Path) -> None:
    for pid, inode in (("7", 41), ("8", 42)):
        folder = tmp_path / pid / "ns"
        folder.mkdir(parents=True)
        (folder / "net").symlink_to(f"net:[{inode}]")
    (tmp_path / "9").mkdir()
    (tmp_path / "self").mkdir()
    mounted = "505 28 0:4 net:[43] /run/netns/job rw shared:1 - nsfs nsfs rw\n"
    (tmp_path / "self/mountinfo").write_text(mounted)

    assert [lives(inode, tmp_path) for inode in (41, 42, 43, 44, 4)] == [True, True, True, False, False]
