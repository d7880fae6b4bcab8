"""Looks at the GPUs through NVIDIA's library, and keeps it open in between. Without it there are no GPUs to tell of."""

import contextlib
from collections.abc import Mapping, Sequence
from itertools import combinations

from clockgated import host
from clockgated.node.facts import Gpu, GpuLook, GpuPath, KernelEvent, NvLink
from clockgated.node.kernel_log import gathered
from clockgated.node.nvml import LIBRARY, Device, Nvml, NvmlError

_GPU_SENSOR, _SLOWDOWN = 0, 1  # nvmlTemperatureSensors_t, nvmlTemperatureThresholds_t
_CORRECTED, _UNCORRECTED, _SINCE_DRIVER_LOAD = 0, 1, 0  # nvmlMemoryErrorType_t, nvmlEccCounterType_t
_THROTTLES = {0x04: "sw_power_cap", 0x08: "hw_slowdown", 0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "hw_power_brake"}
_MOST_NVLINKS = 18  # NVML_NVLINK_MAX_LINKS
_LEVELS = {0: "internal", 10: "single switch", 20: "multiple switches", 30: "host bridge", 40: "node", 50: "system"}


class GpuWatch:
    """Opens the library when it can be had; `look` tries again each time until then."""

    def __init__(self, library: str = LIBRARY) -> None:
        self._name = library
        self._library: Nvml | None = None
        self._peers: dict[tuple[str, int], str] = {}
        self._levels: dict[tuple[str, str], str] = {}
        self._watched: dict[int, str] = {}
        self._errors: tuple[KernelEvent, ...] = ()

    def look(self) -> GpuLook:
        """All GPUs now."""
        try:
            if self._library is None:
                self._library = Nvml(self._name)
            return self._looked(self._library)
        except OSError:
            return GpuLook()
        except NvmlError as error:
            self._close()
            return GpuLook(trouble=str(error))

    def rest(self) -> GpuLook:
        """Give the driver up, and tell of no GPUs."""
        self._close()
        return GpuLook()

    def _close(self) -> None:
        if self._library is not None:
            self._library.close()
            self._library = None
            self._watched = {}

    def _looked(self, library: Nvml) -> GpuLook:
        gpus, devices = [], {}
        for index, device in library.devices():
            if isinstance(device, NvmlError):
                gpus.append(Gpu(index, trouble=str(device)))
                continue
            try:
                gpu = self._gpu(index, device)
                devices[index] = device
                self._watch_errors(library, device, gpu)
            except NvmlError as error:
                gpu = Gpu(index, trouble=str(error))
            gpus.append(gpu)
        return GpuLook(
            library.driver_version(), tuple(gpus), tuple(self._paths(gpus, devices)), errors=self._new_errors(library)
        )

    def _gpu(self, index: int, device: Device) -> Gpu:
        pci, memory, busy = device.pci(), device.memory(), device.utilization()
        throttles = device.long_number("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        rows = device.numbers("nvmlDeviceGetRemappedRows", 4)
        uuid = device.text("nvmlDeviceGetUUID") or ""
        return Gpu(
            index,
            uuid=uuid,
            name=device.text("nvmlDeviceGetName") or "",
            pci_address=pci.address if pci else "",
            memory_total_bytes=memory.total if memory else None,
            memory_used_bytes=memory.used if memory else None,
            utilization_percent=busy.gpu if busy else None,
            temperature_celsius=device.number("nvmlDeviceGetTemperature", _GPU_SENSOR),
            slowdown_celsius=device.number("nvmlDeviceGetTemperatureThreshold", _SLOWDOWN),
            power_milliwatts=device.number("nvmlDeviceGetPowerUsage"),
            power_limit_milliwatts=device.number("nvmlDeviceGetEnforcedPowerLimit"),
            ecc_corrected=device.long_number("nvmlDeviceGetTotalEccErrors", _CORRECTED, _SINCE_DRIVER_LOAD),
            ecc_uncorrected=device.long_number("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _SINCE_DRIVER_LOAD),
            throttle_reasons=tuple(name for bit, name in _THROTTLES.items() if throttles & bit),
            pcie_generation=device.number("nvmlDeviceGetCurrPcieLinkGeneration"),
            pcie_width=device.number("nvmlDeviceGetCurrPcieLinkWidth"),
            pcie_max_generation=device.number("nvmlDeviceGetMaxPcieLinkGeneration"),
            pcie_max_width=device.number("nvmlDeviceGetMaxPcieLinkWidth"),
            nvlinks=tuple(self._nvlinks(uuid, device)),
            has_pending_rows=bool(rows[2]) if rows else None,
            has_failed_rows=bool(rows[3]) if rows else None,
            numa_node=device.number("nvmlDeviceGetNumaNodeId"),
        )

    def _watch_errors(self, library: Nvml, device: Device, gpu: Gpu) -> None:
        number = device.handle.value or 0
        if number not in self._watched:
            self._watched[number] = gpu.pci_address.rpartition(".")[0]
            library.watch_errors(device)

    def _new_errors(self, library: Nvml) -> tuple[KernelEvent, ...]:
        now_boot_ns = host.boot_ns()
        new = (
            KernelEvent("xid", self._watched.get(number, ""), f"the driver reported Xid {xid}", now_boot_ns, code=xid)
            for number, xid in library.errors()
        )
        self._errors = gathered((*self._errors, *new))
        return self._errors

    def _nvlinks(self, uuid: str, device: Device) -> list[NvLink]:
        links = []
        for link in range(_MOST_NVLINKS):
            is_up = device.number("nvmlDeviceGetNvLinkState", link)
            if is_up is None:
                continue
            if is_up and (uuid, link) not in self._peers:
                peer = device.nvlink_peer(link)
                self._peers[uuid, link] = peer.address if peer else ""
            links.append(NvLink(link, bool(is_up), self._peers.get((uuid, link), "")))
        return links

    def _paths(self, gpus: Sequence[Gpu], devices: Mapping[int, Device]) -> list[GpuPath]:
        found = []
        for one, other in combinations([gpu for gpu in gpus if gpu.index in devices], 2):
            key = (one.uuid, other.uuid)
            if key not in self._levels:
                with contextlib.suppress(NvmlError):
                    level = devices[one.index].common_ancestor(devices[other.index])
                    self._levels[key] = "" if level is None else _LEVELS.get(level, "")
            found.append(GpuPath(one.index, other.index, joint_nvlinks(one, other), self._levels.get(key, "")))
        return found


def joint_nvlinks(one: Gpu, other: Gpu) -> int:
    """NVLinks that join two GPUs: those that lead to the other one, or as many as both have to the same switches."""
    direct = sum(link.is_up and link.peer_pci_address == other.pci_address for link in one.nvlinks)
    ours, theirs = ([link.peer_pci_address for link in gpu.nvlinks if link.is_up] for gpu in (one, other))
    switches = set(ours) & set(theirs) - {"", one.pci_address, other.pci_address}
    return direct or sum(min(ours.count(switch), theirs.count(switch)) for switch in switches)
