import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from clockgated.tuning import counters, host_facts, roots, rtt
from clockgated.tuning.links import numa_node, spell_handle
from clockgated.tuning.pcie import hops_above, speed_gts
from hypothesis import given
from hypothesis import strategies as st
from support.tuning_tree import Tree

LIMITS = (
    "Limit                     Soft Limit           Hard Limit           Units\n"
    "Max locked memory         {}              8388608              bytes\n"
)


def acs_config(control: int) -> bytes:
    """Configuration space with AER at 0x100 and ACS behind it."""
    data = bytearray(0x400)
    data[0x100:0x104] = (0x0001 | 1 << 16 | 0x150 << 20).to_bytes(4, "little")
    data[0x150:0x154] = (0x000D | 1 << 16).to_bytes(4, "little")
    data[0x156:0x158] = control.to_bytes(2, "little")
    return bytes(data)


def test_acs_redirects_are_read_from_configuration_space(tmp_path: Path) -> None:
    assert host_facts.redirects_peer_traffic(acs_config(0b0011101)) is True
    assert host_facts.redirects_peer_traffic(acs_config(0b0000001)) is False
    assert host_facts.redirects_peer_traffic(bytes(0x400)) is None
    assert host_facts.redirects_peer_traffic(bytes(64)) is None
    tree = Tree(tmp_path)
    for device, kind, control in (
        ("0000:00:01.0", "0x060400", 0b1100),
        ("0000:00:02.0", "0x060400", 1),
        ("0000:01:00.0", "0x020000", 0b1100),
    ):
        tree.write(f"sys/bus/pci/devices/{device}/class", kind)
        tree.write(f"sys/bus/pci/devices/{device}/config", acs_config(control))
    assert host_facts.read_host(tree.roots).acs_redirects == ("0000:00:01.0",)


@given(st.binary(max_size=600))
def test_any_configuration_space_is_read_without_an_error(config: bytes) -> None:
    host_facts.redirects_peer_traffic(config)


def test_the_memlock_limit_is_that_of_the_job(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.process(20, "python3", cmdline="python3\0/usr/local/bin/clockgate-train\0--x\0", limits=LIMITS.format(8388608))
    tree.process(21, "python3", cmdline="python3\0-m\0torch.distributed.run\0", limits=LIMITS.format("unlimited"))
    tree.process(22, "sshd", cmdline="sshd\0", limits=LIMITS.format(65536))
    jobs = host_facts.read_host(tree.roots).jobs
    assert [(job.pid, job.memlock_bytes, job.is_unlimited) for job in jobs] == [(20, 8388608, False), (21, None, True)]


def test_a_module_that_is_loaded_is_not_yet_registered(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    assert host_facts.read_host(tree.roots).peermem is None
    tree.write("sys/module/nvidia_peermem/refcnt", "0")
    assert host_facts.read_host(tree.roots).peermem == "loaded"
    tree.write("sys/kernel/mm/memory_peers/nv_mem/version", "1")
    assert host_facts.read_host(tree.roots).peermem == "registered"


def test_rdma_ports_tell_state_layer_and_rate(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    assert host_facts.read_host(tree.roots).rdma_ports == ()
    folder = "sys/class/infiniband/mlx4_0/ports/1"
    for name, text in (("state", "4: ACTIVE"), ("link_layer", "InfiniBand"), ("rate", "56 Gb/sec (4X FDR)")):
        tree.write(f"{folder}/{name}", text)
    (port,) = host_facts.read_host(tree.roots).rdma_ports
    assert (port.device, port.state, port.link_layer, port.rate_gbps) == ("mlx4_0", "ACTIVE", "InfiniBand", 56)


def test_pcie_is_compared_with_what_both_ends_can(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    card = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    for folder, most, now in ((card, "32.0", "16.0"), (card.rpartition("/")[0], "16.0", "16.0")):
        tree.write(f"{folder}/max_link_speed", f"{most} GT/s PCIe\n")
        tree.write(f"{folder}/current_link_speed", f"{now} GT/s PCIe\n")
        tree.write(f"{folder}/max_link_width", "16\n")
        tree.write(f"{folder}/current_link_width", "8\n")
    tree.write(f"{card}/numa_node", "1\n")
    (hop,) = hops_above(tmp_path / card, tree.roots.sys)
    assert (hop.speed_gts, hop.possible_speed_gts, hop.width, hop.possible_width) == (16, 16, 8, 16)
    assert numa_node(tmp_path / card) == 1


def test_old_devices_have_no_link_files(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("sys/devices/pci0000:00/0000:00:03.0/vendor", "0x15b3")
    assert hops_above(tmp_path / "sys/devices/pci0000:00/0000:00:03.0", tree.roots.sys) == ()
    assert speed_gts("Unknown") is None


def test_interrupts_belong_to_the_link_that_their_action_names(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write(
        "proc/interrupts",
        "           CPU0       CPU1\n 40:  1  2  PCI-MSI 1-edge  eth0-TxRx-0\n 41:  1  2  PCI-MSI 2-edge  eth0-TxRx-1\n"
        " 42:  1  2  PCI-MSI 3-edge  eth01-TxRx-0\n 43:  1  2  PCI-MSI 3-edge  mlx5_comp0@pci:0000:01:00.0\n"
        "NMI: 0 0 Non-maskable\n",
    )
    tree.write("proc/irq/40/smp_affinity_list", "0-1\n")
    irqs = host_facts.read_irqs(tree.roots, {"eth0": frozenset({"0000:01:00.0"})})
    assert [(irq.number, irq.action, irq.affinity) for irq in irqs] == [
        (40, "eth0-TxRx-0", "0-1"), (41, "eth0-TxRx-1", None), (43, "mlx5_comp0@pci:0000:01:00.0", None),
    ]  # fmt: skip


def test_softnet_counts_over_all_cpus_in_hexadecimal() -> None:
    found = counters.parse_softnet("000000ff 00000001 00000010 0\n000000ff 0000000f 00000001 0\n")
    assert found == {"softnet.dropped": 16, "softnet.squeezed": 17}


def test_tables_of_the_stack_pair_names_with_values() -> None:
    text = "Tcp: RetransSegs OutSegs\nTcp: 3 100\nUdp: RetransSegs\nUdp: 9\nTcpExt: PruneCalled\nTcpExt: 7\n"
    assert counters.parse_table(text) == {"RetransSegs": 3, "OutSegs": 100, "PruneCalled": 7}


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    counters.parse_softnet(text)
    counters.parse_table(text)
    host_facts.parse_cpu_list(text)
    host_facts.parse_memlock(text)
    host_facts.parse_settings(text)
    host_facts.selected(text)
    speed_gts(text)


def test_counters_are_found_again_by_their_names(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("proc/net/softnet_stat", "1 2 3\n")
    tree.write("sys/class/net/eth0/statistics/rx_missed_errors", "7\n")
    read = counters.read_counters(["eth0.rx_missed_errors", "gone.rx_dropped", "softnet.dropped"], tree.roots)
    assert [(one.name, one.value) for one in read] == [("eth0.rx_missed_errors", 7), ("softnet.dropped", 2)]


def test_handles_are_spelled_as_people_do() -> None:
    assert spell_handle(0xFFFFFFFF) == "root"
    assert spell_handle(0x80010002) == "8001:2"


def test_an_empty_tree_gives_unknowns_alone(tmp_path: Path) -> None:
    host = host_facts.read_host(Tree(tmp_path).roots)
    assert (host.ram_bytes, host.softnet_dropped, host.thp, host.neighbours, host.is_iommu_on) == (None,) * 5
    assert host.cpus.count == 1


def test_the_checksum_of_an_echo_request_sums_to_zero() -> None:
    assert rtt.checksum(rtt.echo_request(socket.AF_INET, 7, 3)) == 0


@given(st.binary(max_size=80))
def test_any_packet_is_read_without_an_error(packet: bytes) -> None:
    rtt.reply_sequence(socket.AF_INET, packet, 1)
    rtt.reply_sequence(socket.AF_INET6, packet, 1)


def test_the_95th_percentile_is_a_value_that_was_seen() -> None:
    assert rtt.percentile_95(range(1, 101)) == 95
    assert rtt.percentile_95([5]) == 5


def test_a_key_on_a_mount_that_cannot_be_written_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "key"
    key.touch(mode=0o644)
    assert roots.is_writable(key)
    # What access(2) answers to root as well, with EROFS, in containers.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert not roots.is_writable(key)


def test_a_peer_that_is_no_name_of_a_host_is_silent() -> None:
    assert rtt.measure(["a..b", "x" * 300]) is None


def test_a_name_that_hangs_holds_up_neither_the_others_nor_the_end_of_the_process() -> None:
    program = """
import time
from clockgated.tuning import rtt

rtt._LONGEST_S = 0.3
rtt._probe = lambda peer: time.sleep(60) if peer == "hangs" else [7]
print(rtt.probe_all(["hangs", "answers"]))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=30)
    assert ran.stdout == "{'hangs': None, 'answers': [7]}\n", ran.stderr
