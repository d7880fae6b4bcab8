"""What is wrong with the GPUs. Pure."""

from collections.abc import Iterable

from clockgated.config import NodeConfig
from clockgated.node.facts import Gpu, GpuLook, KernelEvent
from clockgated.node.history import History
from clockgated.node.model import Finding, FindingCode, Severity

_GIB = 1 << 30
# Numbers and what they mean: NVIDIA's "XID Errors". The rest are warnings.
_FATAL_XIDS = frozenset({48, 62, 64, 74, 79, 95, 109, 119, 120, 136, 140, 143, 154})
_APPLICATION_XIDS = frozenset({13, 31, 43, 45})
_BUSY_PERCENT = 50
"""Below that a GPU saves power by a slower PCIe link, which says nothing."""
_IN_USE_BYTES = 2 * _GIB
"""The driver itself and a desktop take less."""
_COOLING = {"hw_thermal", "hw_slowdown", "hw_power_brake", "sw_thermal"}


def judge_gpus(
    look: GpuLook, nvidia_devices: tuple[str, ...], history: History, limits: NodeConfig
) -> Iterable[Finding]:
    """Findings about the library and every GPU."""
    if look.trouble is not None and nvidia_devices:
        yield Finding(
            FindingCode.GPU_DRIVER, Severity.CRITICAL, "nvidia driver", look.trouble, "a library that answers",
            "load the driver (`modprobe nvidia`), or boot again after its upgrade",
        )  # fmt: skip
        return
    if look.driver_version is None and nvidia_devices:
        yield Finding(
            FindingCode.GPU_DRIVER, Severity.INFO, "nvidia driver",
            f"{len(nvidia_devices)} NVIDIA devices and no libnvidia-ml.so.1", "NVIDIA's driver",
            "install it, unless the devices belong to virtual machines",
        )  # fmt: skip
        return
    here = {gpu.uuid for gpu in look.gpus}
    for uuid, subject in history.gpus.items():
        if uuid not in here:
            yield Finding(
                FindingCode.GPU_LOST, Severity.CRITICAL, f"{subject} ({uuid})", "not there any more", "there",
                "read `journalctl -k | grep NVRM`, drain the node, and boot it again",
            )  # fmt: skip
    for gpu in look.gpus:
        yield from _gpu(gpu, history, limits)


def judge_xids(events: Iterable[KernelEvent], gpus: Iterable[Gpu], now_boot_ns: int, hold_ns: int) -> Iterable[Finding]:
    """Findings about errors that GPU drivers reported in the last `hold_ns`."""
    names = {gpu.pci_address.rpartition(".")[0]: gpu.subject for gpu in gpus}
    for event in events:
        if event.kind != "xid" or now_boot_ns - event.seen_boot_ns >= hold_ns:
            continue
        severity = Severity.CRITICAL if event.code in _FATAL_XIDS else Severity.WARNING
        step = "drain the node and reset the GPU or boot again"
        if event.code in _APPLICATION_XIDS:
            severity, step = Severity.INFO, "look at the job that ran there first: such errors are mostly its own"
        place = names.get(event.subject.partition(".")[0].lower(), event.subject)
        yield Finding(FindingCode.GPU_XID, severity, f"{place} Xid {event.code}", event.text[:200], "no Xid", step)


def _gpu(gpu: Gpu, history: History, limits: NodeConfig) -> Iterable[Finding]:
    if gpu.trouble is not None:
        yield Finding(
            FindingCode.GPU_LOST, Severity.CRITICAL, gpu.subject, gpu.trouble, "a GPU that answers",
            "read `journalctl -k | grep NVRM`, drain the node, and boot it again",
        )  # fmt: skip
        return
    yield from _heat(gpu, limits)
    yield from _memory(gpu, history)
    yield from _load(gpu, limits)
    yield from _joints(gpu)


def _heat(gpu: Gpu, limits: NodeConfig) -> Iterable[Finding]:
    now, slowdown = gpu.temperature_celsius, gpu.slowdown_celsius
    if now is not None and slowdown is not None and now > slowdown - limits.temperature_margin_celsius:
        yield Finding(
            FindingCode.GPU_TEMPERATURE, Severity.WARNING, gpu.subject, f"{now:.0f} °C",
            f"below {slowdown - limits.temperature_margin_celsius:.0f} °C; it slows down at {slowdown:.0f} °C",
            "look at fans, filters and the air of the room",
        )  # fmt: skip
    hot = [reason for reason in gpu.throttle_reasons if reason in _COOLING]
    if gpu.throttle_reasons:
        severity = Severity.WARNING if hot else Severity.INFO
        step = "look at cooling and power supplies" if hot else "nothing, unless its power limit was lowered"
        yield Finding(
            FindingCode.GPU_THROTTLED, severity, gpu.subject, ", ".join(gpu.throttle_reasons), "full clocks", step
        )


def _memory(gpu: Gpu, history: History) -> Iterable[Finding]:
    if gpu.ecc_uncorrected:
        is_new = f"{gpu.uuid}.uncorrected" in history.rises
        yield Finding(
            FindingCode.GPU_MEMORY_ERRORS, Severity.CRITICAL if is_new else Severity.WARNING, gpu.subject,
            f"{gpu.ecc_uncorrected} uncorrected errors since the driver was loaded", "none",
            "do not trust results of that time; drain the node and reset the GPU",
        )  # fmt: skip
    if gpu.has_failed_rows or gpu.has_pending_rows:
        severity = Severity.CRITICAL if gpu.has_failed_rows else Severity.WARNING
        value = "replacing memory rows failed" if gpu.has_failed_rows else "memory rows wait to be replaced"
        step = "have the GPU replaced" if gpu.has_failed_rows else "reset the GPU when its jobs are done"
        yield Finding(FindingCode.GPU_ROW_REMAP, severity, gpu.subject, value, "no bad rows", step)


def _load(gpu: Gpu, limits: NodeConfig) -> Iterable[Finding]:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    if used is None or not total:
        return
    if 100 * used / total > limits.gpu_memory_high_percent:
        yield Finding(
            FindingCode.GPU_MEMORY_HIGH, Severity.WARNING, gpu.subject,
            f"{used / _GIB:.1f} of {total / _GIB:.1f} GiB in use", f"at most {limits.gpu_memory_high_percent:g} %",
            "use a smaller micro-batch or gradient checkpointing if the job runs out of memory",
        )  # fmt: skip
    busy = gpu.utilization_percent
    if busy is not None and busy < limits.gpu_idle_percent and used > _IN_USE_BYTES:
        yield Finding(
            FindingCode.GPU_IDLE, Severity.INFO, gpu.subject, f"in use and busy for {busy:.0f} % of the time",
            f"at least {limits.gpu_idle_percent:g} %", "see whether the job waits for data, for others or for the gate",
        )  # fmt: skip


def _joints(gpu: Gpu) -> Iterable[Finding]:
    width, wide = gpu.pcie_width, gpu.pcie_max_width
    generation, newest = gpu.pcie_generation, gpu.pcie_max_generation
    is_narrow = width is not None and wide is not None and width < wide
    is_busy = (gpu.utilization_percent or 0) >= _BUSY_PERCENT
    is_slow = is_busy and generation is not None and newest is not None and generation < newest
    if is_narrow or is_slow:
        yield Finding(
            FindingCode.PCIE_DEGRADED, Severity.WARNING, gpu.subject, f"generation {generation} x{width}",
            f"generation {newest} x{wide}",
            "reseat the card and its riser, then look at the slot's setting in the firmware",
        )  # fmt: skip
    down = [str(one.link) for one in gpu.nvlinks if not one.is_up]
    if down and len(down) < len(gpu.nvlinks):
        yield Finding(
            FindingCode.NVLINK_DOWN, Severity.WARNING, gpu.subject, f"links {', '.join(down)} down",
            f"all {len(gpu.nvlinks)} up", "read `nvidia-smi nvlink -s` and `journalctl -u nvidia-fabricmanager`",
        )  # fmt: skip
