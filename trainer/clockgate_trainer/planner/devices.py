"""What is known about accelerators: memory and the speed that no program can pass. From their makers' data sheets."""

from dataclasses import dataclass

from clockgate_trainer.errors import UsageError
from clockgate_trainer.planner.memory import GIB


@dataclass(frozen=True)
class Device:
    """An accelerator: dense `bf16_flops` a second, its memory's bandwidth, and that of its link within the node."""

    name: str
    memory_bytes: float
    bf16_flops: float
    memory_bytes_s: float
    link_bytes_s: float


def _device(name: str, memory_gib: float, teraflops: float, terabytes_s: float, link_gigabytes_s: float) -> Device:
    return Device(name, memory_gib * GIB, teraflops * 1e12, terabytes_s * 1e12, link_gigabytes_s * 1e9)


# Memory is what the driver reports as usable; links are NVLink per direction, or PCIe where there is none.
_DEVICES = {
    device.name: device
    for device in (
        _device("h200", 139.8, 989, 4.8, 450),
        _device("h100", 79.1, 989, 3.35, 450),
        _device("a100-80", 79.1, 312, 2.0, 300),
        _device("a100-40", 39.4, 312, 1.55, 300),
        _device("l40s", 44.5, 362, 0.86, 32),
        _device("a6000", 47.4, 155, 0.77, 56),
        _device("rtx4090", 23.5, 165, 1.0, 32),
        _device("rtx3090", 23.6, 71, 0.94, 56),
        _device("l4", 22.0, 121, 0.3, 32),
    )
}
DEVICE_NAMES = tuple(_DEVICES)


def named_device(name: str) -> Device:
    """The accelerator called `name`. Raises UsageError."""
    found = _DEVICES.get(name.lower())
    if found is None:
        raise UsageError(f"--gpu is {name!r}: wanted one of {', '.join(DEVICE_NAMES)}")
    return found


def recognised(full_name: str, memory_bytes: float) -> Device | None:
    """The accelerator that a driver calls `full_name`, with the memory that it really has; None when unknown."""
    plain = full_name.lower().replace(" ", "")
    fitting = [device for name, device in _DEVICES.items() if name.partition("-")[0] in plain]
    if not fitting:
        return None
    nearest = min(fitting, key=lambda device: abs(device.memory_bytes - memory_bytes))
    return Device(nearest.name, memory_bytes, nearest.bf16_flops, nearest.memory_bytes_s, nearest.link_bytes_s)
