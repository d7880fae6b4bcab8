"""What is read of /proc and /sys, on trees of files as kernels have them, and from kernel messages."""

import os
from pathlib import Path

import pytest
from clockgated.node.facts import FabricLook, Gid, KernelEvent
from clockgated.node.kernel_log import KernelLog, gathered, parse_record
from clockgated.node.look_fabric import FabricWatch, look_platform
from clockgated.node.look_host import (
    is_device_read_only,
    look_disks,
    look_host,
    parse_load,
    parse_meminfo,
    parse_pressure,
)
from clockgated.tuning.roots import Roots
from hypothesis import given
from hypothesis import strategies as st

PRESSURE = "some avg10=1.00 avg60=12.50 avg300=0.10 total=1\nfull avg10=0.00 avg60=3.25 avg300=0.00 total=1\n"
XID = b"3,1234,5000000,-;NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', GPU has fallen off the bus.\n SUBSYSTEM=pci\n"


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return Roots(tmp_path / "proc", tmp_path / "sys", tmp_path / "root")


def test_the_machine_is_read_from_proc_and_sys(roots: Roots) -> None:
    put(
        roots.proc,
        {
            "pressure/cpu": PRESSURE, "pressure/memory": PRESSURE, "pressure/io": PRESSURE,
            "meminfo": "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    400 kB\nHugePages_Total:  0\n",
            "loadavg": "0.50 1.25 2.00 1/100 4242\n", "vmstat": "pgfault 9\noom_kill 3\noom_killer 7\n",
            "sys/kernel/tainted": "512\n",
        },
    )  # fmt: skip
    put(
        roots.sys,
        {
            "devices/system/cpu/online": "0-3,8\n",
            "devices/system/edac/mc/mc0/ce_count": "5\n", "devices/system/edac/mc/mc0/ue_count": "0\n",
            "devices/system/edac/mc/mc1/ce_count": "2\n", "devices/system/edac/mc/mc1/ue_count": "1\n",
            "devices/system/edac/mc/power/control": "auto\n",
            "devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
            "class/thermal/thermal_zone0/temp": "61500\n", "class/thermal/thermal_zone0/type": "x86_pkg_temp\n",
            "class/thermal/thermal_zone0/trip_point_0_type": "passive\n",
            "class/thermal/thermal_zone0/trip_point_0_temp": "80000\n",
            "class/thermal/thermal_zone0/trip_point_1_type": "critical\n",
            "class/thermal/thermal_zone0/trip_point_1_temp": "100000\n",
            "class/thermal/thermal_zone1/temp": "-274000\n", "class/thermal/thermal_zone1/type": "iwlwifi_1\n",
            "class/thermal/cooling_device0/cur_state": "0\n",
        },
    )  # fmt: skip
    seen = look_host(roots)
    assert (seen.pressure.cpu_some_percent, seen.pressure.memory_full_percent) == (12.5, 3.25)
    assert (seen.memory_total_bytes, seen.memory_available_bytes) == (1000 << 10, 400 << 10)
    assert (seen.load_5min, seen.cpu_count, seen.oom_kills, seen.taint) == (1.25, 5, 3, 512)
    assert (seen.memory_errors_corrected, seen.memory_errors_uncorrected, seen.clocksource) == (7, 1, "tsc")
    assert [(one.sensor, one.celsius, one.critical_celsius) for one in seen.temperatures] == [
        ("thermal_zone0 x86_pkg_temp", 61.5, 100.0)
    ]


def test_what_is_not_there_is_unknown_and_never_zero(roots: Roots) -> None:
    seen = look_host(roots)
    assert {seen.memory_total_bytes, seen.load_5min, seen.cpu_count, seen.oom_kills, seen.memory_errors_corrected} == {
        None
    }
    assert FabricWatch(roots).look() == FabricLook()
    assert look_platform(roots).has_dma_buf is None


@given(st.text(max_size=200))
def test_parsers_of_proc_never_raise(text: str) -> None:
    parse_pressure(text, "some")
    parse_meminfo(text)
    parse_load(text)


def test_a_folder_that_is_not_there_yet_is_judged_by_the_one_above(tmp_path: Path) -> None:
    here, below = look_disks((str(tmp_path), str(tmp_path / "not/yet"), str(tmp_path)), Roots())
    assert below.total_bytes == here.total_bytes
    assert here.total_bytes
    assert here.is_read_only in (False, None)


def test_a_file_system_is_read_only_when_its_device_is_and_not_for_a_sandbox() -> None:
    mounts = (
        "36 35 98:0 / /data rw,noatime shared:1 - ext4 /dev/sda1 ro,errors=remount-ro\n"
        "37 35 98:1 / /home ro,noatime - ext4 /dev/sdb1 rw,errors=remount-ro\n"
    )
    assert is_device_read_only(mounts, os.makedev(98, 0)) is True
    assert is_device_read_only(mounts, os.makedev(98, 1)) is False
    assert is_device_read_only(mounts, os.makedev(98, 2)) is None


@given(st.text(max_size=200))
def test_mounts_of_any_text_never_raise(text: str) -> None:
    is_device_read_only(text, 5)


def test_interfaces_are_read_with_their_counters(roots: Roots) -> None:
    driver = roots.sys / "bus/pci/drivers/mlx5_core"
    driver.mkdir(parents=True)
    device = roots.sys / "devices/pci0000:17/0000:18:00.0"
    put(device, {"numa_node": "1\n"})
    (device / "driver").symlink_to(driver)
    put(
        roots.sys / "class/net",
        {
            "eth0/flags": "0x1003\n", "eth0/carrier": "1\n", "eth0/mtu": "9000\n", "eth0/speed": "100000\n",
            "eth0/duplex": "full\n", "eth0/carrier_down_count": "4\n", "eth0/statistics/rx_bytes": "77\n",
            "eth0/statistics/rx_dropped": "2\n", "eth0/statistics/rx_missed_errors": "3\n",
            "eth1/flags": "0x1002\n", "eth1/speed": "-1\n", "eth1/duplex": "unknown\n", "lo/flags": "0x9\n",
            "bonding_masters": "\n",
        },
    )  # fmt: skip
    (roots.sys / "class/net/eth0/device").symlink_to(device)
    real, virtual = FabricWatch(roots).look().links
    assert (real.name, real.driver, real.is_up, real.has_carrier) == ("eth0", "mlx5_core", True, True)
    assert (real.mtu_bytes, real.speed_mbps, real.duplex, real.carrier_losses) == (9000, 100_000, "full", 4)
    assert (real.rx_drops, real.counters["rx_bytes"], real.numa_node) == (5, 77, 1)
    assert (virtual.name, virtual.driver, virtual.is_up, virtual.has_carrier) == ("eth1", "", False, None)
    assert (virtual.speed_mbps, virtual.duplex, virtual.rx_drops) == (None, "", None)


def test_of_thousands_of_virtual_interfaces_some_are_read(roots: Roots) -> None:
    put(roots.sys / "class/net", {f"veth{number:04}/flags": "0x1003\n" for number in range(300)})
    put(roots.sys / "class/net", {"zz0/flags": "0x1003\n", "zz0/device/numa_node": "0\n"})
    names = [link.name for link in FabricWatch(roots).look().links]
    assert len(names) == 65
    assert "zz0" in names


def test_rdma_ports_are_read_as_ibstat_and_show_gids_do(roots: Roots) -> None:
    port = "class/infiniband/mlx5_0/ports/1"
    put(
        roots.sys,
        {
            "class/infiniband/mlx5_0/fw_ver": "28.39.1002\n", f"{port}/state": "4: ACTIVE\n",
            f"{port}/phys_state": "5: LinkUp\n", f"{port}/link_layer": "Ethernet\n",
            f"{port}/rate": "400 Gb/sec (4X NDR)\n", f"{port}/lid": "0x0\n", f"{port}/sm_lid": "0x0\n",
            f"{port}/gids/0": "fe80:0000:0000:0000:a288:c2ff:fe3a:1b2c\n",
            f"{port}/gids/1": "0000:0000:0000:0000:0000:0000:0000:0000\n",
            f"{port}/gids/10": "0000:0000:0000:0000:0000:ffff:0a00:0102\n",
            f"{port}/gid_attrs/types/0": "IB/RoCE v1\n", f"{port}/gid_attrs/types/10": "RoCE v2\n",
            f"{port}/gid_attrs/ndevs/10": "eth0\n",
            f"{port}/counters/symbol_error": "3\n", f"{port}/counters/port_rcv_data": "99\n",
            f"{port}/hw_counters/out_of_sequence": "1\n", f"{port}/hw_counters/lifespan": "10\n",
        },
    )  # fmt: skip
    (seen,) = FabricWatch(roots).look().rdma_ports
    assert (seen.subject, seen.state, seen.phys_state, seen.link_layer) == ("mlx5_0/1", "ACTIVE", "LinkUp", "Ethernet")
    assert (seen.rate_gbps, seen.firmware, seen.lid) == (400.0, "28.39.1002", None)
    assert seen.gids == (
        Gid(0, "fe80:0000:0000:0000:a288:c2ff:fe3a:1b2c", "IB/RoCE v1"),
        Gid(10, "0000:0000:0000:0000:0000:ffff:0a00:0102", "RoCE v2", "eth0"),
    )
    assert seen.counters == {"symbol_error": 3, "port_rcv_data": 99, "out_of_sequence": 1}


def test_tables_of_gids_are_read_anew_after_a_while(roots: Roots) -> None:
    gids = "class/infiniband/mlx5_0/ports/1/gids"
    put(roots.sys, {f"{gids}/0": "fe80:0000:0000:0000:0000:0000:0000:0001\n"})
    lasting, fresh = FabricWatch(roots), FabricWatch(roots, gids_last_ns=0)
    before = [watch.look().rdma_ports[0].gids for watch in (lasting, fresh)]
    put(roots.sys, {f"{gids}/0": "fe80:0000:0000:0000:0000:0000:0000:0002\n"})
    assert lasting.look().rdma_ports[0].gids == before[0]
    assert fresh.look().rdma_ports[0].gids != before[1]


def test_an_infiniband_port_has_its_local_identifier(roots: Roots) -> None:
    port = "class/infiniband/mlx5_1/ports/1"
    put(roots.sys, {f"{port}/lid": "0x1a\n", f"{port}/sm_lid": "0x1\n", f"{port}/state": "2: INIT\n"})
    (seen,) = FabricWatch(roots).look().rdma_ports
    assert (seen.lid, seen.sm_lid, seen.state) == (26, 1, "INIT")


def test_what_lets_rdma_reach_gpus_is_read(roots: Roots) -> None:
    put(
        roots.sys,
        {
            "bus/pci/devices/0000:18:00.0/class": "0x030200\n", "bus/pci/devices/0000:18:00.0/vendor": "0x10de\n",
            "bus/pci/devices/0000:18:00.1/class": "0x040300\n", "bus/pci/devices/0000:18:00.1/vendor": "0x10de\n",
            "bus/pci/devices/0000:00:02.0/class": "0x030000\n", "bus/pci/devices/0000:00:02.0/vendor": "0x8086\n",
            "module/nvidia_peermem/initstate": "live\n",
        },
    )  # fmt: skip
    put(roots.proc, {"driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.1\n"})
    seen = look_platform(roots)
    assert (seen.nvidia_devices, seen.peermem, seen.has_dma_buf) == (("0000:18:00.0",), "loaded", True)
    put(roots.proc, {"driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.1\n"})
    assert look_platform(roots).has_dma_buf is False


def test_an_xid_is_read_with_its_place_number_and_time() -> None:
    assert parse_record(XID, offset_ns=7) == KernelEvent(
        "xid",
        "0000:18:00",
        "NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', GPU has fallen off the bus.",
        5_000_000_007,
        code=79,
    )


@pytest.mark.parametrize(
    ("line", "kind", "subject"),
    [
        ("INFO: task python3:4242 blocked for more than 120 seconds.", "hung_task", "python3"),
        ("mce: [Hardware Error]: Machine check events logged", "hardware", "hardware"),
        ("pcieport 0000:00:01.0: AER: Uncorrectable (Fatal) error", "hardware", "hardware"),
        ("EXT4-fs error (device nvme0n1p1): ext4_find_entry:1455: inode #2", "file_system", "nvme0n1p1"),
        ("XFS (sda1): metadata I/O error in xfs_trans_read", "file_system", "sda1"),
        ("blk_update_request: I/O error, dev sdb, sector 0", "file_system", "sdb"),
        ("NVRM: Xid (0000:3b:00): 31, pid=1, name=python", "xid", "0000:3b:00"),
    ],
)
def test_trouble_in_the_kernel_log_is_recognised(line: str, kind: str, subject: str) -> None:
    event = parse_record(f"4,1,1000,-;{line}\n".encode(), 0)
    assert event is not None
    assert (event.kind, event.subject) == (kind, subject)


@pytest.mark.parametrize(
    "record",
    [
        b"6,1,1000,-;eth0: link becomes ready\n",
        b"6,1,1000,-;XFS (sda1): Mounting V5 Filesystem\n",
        # Facility 1: a program wrote that to /dev/kmsg.
        b"12,1,1000,-;NVRM: Xid (PCI:0000:18:00): 79, pid=1\n",
        b"NVRM: Xid (PCI:0000:18:00): 79\n",
        b"3,1;NVRM: Xid (PCI:0000:18:00): 79\n",
    ],
)
def test_all_else_in_the_kernel_log_is_not(record: bytes) -> None:
    assert parse_record(record, 0) is None


@given(st.binary(max_size=300) | st.binary(max_size=200).map(lambda tail: b"3,1,5,-;NVRM: Xid (PCI:" + tail))
def test_records_of_any_bytes_never_raise(record: bytes) -> None:
    parse_record(record, 0)


def test_a_repeated_event_is_counted_and_a_flood_is_cut() -> None:
    one = KernelEvent("xid", "a", "first", 1, code=31)
    again = KernelEvent("xid", "a", "second", 2, code=31)
    assert gathered((one, again)) == (KernelEvent("xid", "a", "second", 2, code=31, count=2),)
    many = gathered(KernelEvent("hung_task", f"t{number}", "", number) for number in range(5000))
    assert len(many) == 200
    assert many[-1].subject == "t4999"


def test_the_kernel_log_is_read_on_from_where_it_was(tmp_path: Path) -> None:
    # A pipe hands out what is written like /dev/kmsg: a record for a read when they are written one by one.
    pipe = tmp_path / "kmsg"
    os.mkfifo(pipe)
    log = KernelLog(pipe)
    writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    try:
        assert log.look() == ()
        os.write(writer, XID)
        assert [event.code for event in log.look() or ()] == [79]
        os.write(writer, XID)
        assert [event.count for event in log.look() or ()] == [2]
    finally:
        os.close(writer)
        log.close()
    assert log.look() is None


def test_a_kernel_log_that_may_not_be_read_is_unknown(tmp_path: Path) -> None:
    assert KernelLog(tmp_path / "nothing").look() is None
