"""NVIDIA's management library through ctypes: what a GPU tells, in plain numbers. No Debian package wraps it.

Only what looks is called. While the library is open the driver counts this process as a client: it must be closed
before GPUs can be reset or the driver be unloaded.
"""

import ctypes
from collections.abc import Iterator, Sequence

from clockgated.errors import ClockgateError

LIBRARY = "libnvidia-ml.so.1"
NOT_SUPPORTED = 3
GPU_IS_LOST, RESET_REQUIRED, UNKNOWN = 15, 16, 999
_TEXT_BYTES = 96
_XID_EVENT = 0x8  # nvmlEventTypeXidCriticalError
_MOST_ERRORS = 100
"""In one look; the rest comes with the next."""
_FUNCTION_NOT_FOUND = 13
_MESSAGES = {
    1: "the library is not initialised", 2: "invalid argument", 4: "no permission", 9: "the driver is not loaded",
    12: "a library of the driver is missing", 15: "the GPU has fallen off the bus", 16: "the GPU needs a reset",
    18: "driver and library have different versions", 999: "unknown error",
}  # fmt: skip


class NvmlError(ClockgateError):
    """The library refused; `code` is its nvmlReturn_t."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what}: {_MESSAGES.get(code, f'error {code}')}")
        self.code = code


class PciInfo(ctypes.Structure):
    """nvmlPciInfo_t."""

    _fields_ = (
        ("busIdLegacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pciDeviceId", ctypes.c_uint),
        ("pciSubSystemId", ctypes.c_uint),
        ("busId", ctypes.c_char * 32),
    )

    @property
    def address(self) -> str:
        """As sysfs has it: "0000:18:00.0"."""
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.0"


class Memory(ctypes.Structure):
    """nvmlMemory_t, bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Utilization(ctypes.Structure):
    """nvmlUtilization_t, percent of the last sampling period."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class EventData(ctypes.Structure):
    """nvmlEventData_t."""

    _fields_ = (
        ("device", ctypes.c_void_p),
        ("eventType", ctypes.c_ulonglong),
        ("eventData", ctypes.c_ulonglong),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
    )


class Nvml:
    """An open library, until `close`. Raises OSError when there is none, NvmlError when it cannot be used."""

    def __init__(self, library: str = LIBRARY) -> None:
        self._library = ctypes.CDLL(library)
        self._events: ctypes.c_void_p | None = None
        self._demand("nvmlInit_v2")

    def close(self) -> None:
        """Give the driver up."""
        self._call("nvmlShutdown")

    def driver_version(self) -> str | None:
        """Version of the driver."""
        return self._text("nvmlSystemGetDriverVersion")

    def devices(self) -> Iterator[tuple[int, "Device | NvmlError"]]:
        """Every GPU by index; an error in the place of one that does not answer."""
        count = ctypes.c_uint()
        self._demand("nvmlDeviceGetCount_v2", ctypes.byref(count))
        for index in range(count.value):
            handle = ctypes.c_void_p()
            code = self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            yield index, NvmlError(code, f"gpu {index}") if code else Device(self, handle)

    def watch_errors(self, device: "Device") -> None:
        """From now on `errors` tells of errors that the driver of `device` reports; nothing where it cannot."""
        if self._events is None:
            events = ctypes.c_void_p()
            if self._call("nvmlEventSetCreate", ctypes.byref(events)):
                return
            self._events = events
        self._call("nvmlDeviceRegisterEvents", device.handle, ctypes.c_ulonglong(_XID_EVENT), self._events)

    def errors(self) -> Iterator[tuple[int, int]]:
        """New errors: the handle's number of the GPU, and the Xid; does not wait."""
        for _ in range(_MOST_ERRORS if self._events is not None else 0):
            told = EventData()
            if self._call("nvmlEventSetWait_v2", self._events, ctypes.byref(told), ctypes.c_uint(0)):
                return
            if told.eventType == _XID_EVENT:
                yield told.device or 0, told.eventData

    def call(self, name: str, *words: object) -> int:
        """The code that the function returns; 13 when the library is too old to have it."""
        return self._call(name, *words)

    def _call(self, name: str, *words: object) -> int:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            return _FUNCTION_NOT_FOUND
        code: int = function(*words)
        return code

    def _demand(self, name: str, *words: object) -> None:
        code = self._call(name, *words)
        if code:
            raise NvmlError(code, name)

    def _text(self, name: str, *words: object) -> str | None:
        buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        code = self._call(name, *words, buffer, ctypes.c_uint(_TEXT_BYTES))
        return None if code else buffer.value.decode(errors="replace")


class Device:
    """One GPU. What it does not have, or does not tell, is None; NvmlError when it does not answer at all."""

    def __init__(self, library: Nvml, handle: ctypes.c_void_p) -> None:
        self._library = library
        self.handle = handle

    def text(self, name: str) -> str | None:
        """What a function of (device, buffer, length) writes."""
        buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        is_known = self._ask(name, buffer, ctypes.c_uint(_TEXT_BYTES))
        return buffer.value.decode(errors="replace") if is_known else None

    def number(self, name: str, *words: int) -> int | None:
        """What a function of (device, words, unsigned int *) writes."""
        value = ctypes.c_uint()
        return value.value if self._ask(name, *map(ctypes.c_uint, words), ctypes.byref(value)) else None

    def long_number(self, name: str, *words: int) -> int | None:
        """What a function of (device, words, unsigned long long *) writes."""
        value = ctypes.c_ulonglong()
        return value.value if self._ask(name, *map(ctypes.c_uint, words), ctypes.byref(value)) else None

    def numbers(self, name: str, count: int) -> Sequence[int] | None:
        """What a function of (device, `count` times unsigned int *) writes."""
        values = [ctypes.c_uint() for _ in range(count)]
        return [one.value for one in values] if self._ask(name, *map(ctypes.byref, values)) else None

    def memory(self) -> Memory | None:
        """Memory, total and used."""
        told = Memory()
        return told if self._ask("nvmlDeviceGetMemoryInfo", ctypes.byref(told)) else None

    def utilization(self) -> Utilization | None:
        """How busy it was."""
        told = Utilization()
        return told if self._ask("nvmlDeviceGetUtilizationRates", ctypes.byref(told)) else None

    def pci(self) -> PciInfo | None:
        """Its place."""
        told = PciInfo()
        return told if self._ask("nvmlDeviceGetPciInfo_v3", ctypes.byref(told)) else None

    def nvlink_peer(self, link: int) -> PciInfo | None:
        """What is at the other end of an NVLink."""
        told = PciInfo()
        asked = self._ask("nvmlDeviceGetNvLinkRemotePciInfo_v2", ctypes.c_uint(link), ctypes.byref(told))
        return told if asked else None

    def common_ancestor(self, other: "Device") -> int | None:
        """nvmlGpuTopologyLevel_t of the closest point on PCIe that it shares with `other`."""
        level = ctypes.c_uint()
        asked = self._ask("nvmlDeviceGetTopologyCommonAncestor", other.handle, ctypes.byref(level))
        return level.value if asked else None

    def _ask(self, name: str, *words: object) -> bool:
        code = self._library.call(name, self.handle, *words)
        if code in (GPU_IS_LOST, RESET_REQUIRED):
            raise NvmlError(code, name)
        return code == 0
