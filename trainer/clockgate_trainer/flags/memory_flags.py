"""What --device_map and --max_memory may say. Pure."""

import ast
import re
from collections.abc import Mapping

from clockgate_trainer.errors import UsageError

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_WANTED_MEMORY = "wanted a size for each device, as in \"{0: '46000MB', 1: '46000MB'}\""
_WANTED_MAP = "wanted auto, or a device number for each module, as in \"{'': 0}\""

DeviceMap = Mapping[str, int | str]


def read_max_memory(text: str) -> Mapping[int, int]:
    """Bytes by device number. Raises UsageError."""
    problem = f"--max_memory is {text!r}: {_WANTED_MEMORY}"
    table = _table(text, problem)
    found: dict[int, int] = {}
    for device, size in table.items():
        if device == "cpu":
            raise UsageError(
                "--max_memory names the cpu: layers are not moved there, training would crawl. Leave it out"
            )
        if isinstance(device, bool) or not isinstance(device, int) or device < 0:
            raise UsageError(f"--max_memory names the device {device!r}: wanted a number from 0, as CUDA counts them")
        found[device] = _bytes(device, size)
    return found


def read_device_map(text: str) -> DeviceMap | None:
    """A device for each module name; None for auto. Raises UsageError."""
    if text == "auto":
        return None
    problem = f"--device_map is {text!r}: {_WANTED_MAP}"
    if not text.startswith("{"):
        raise UsageError(problem)
    found: dict[str, int | str] = {}
    for module, device in _table(text, problem).items():
        if not isinstance(module, str):
            raise UsageError(
                f"--device_map names the module {module!r}: wanted a name in quotes, '' for the whole model"
            )
        if isinstance(device, list | tuple | set):
            raise UsageError(
                f"--device_map puts {module!r} on {device!r}: a module goes to one device; wanted auto, which spreads "
                "layers over all devices, or a copy per device by clockgate-train launch --nproc-per-node"
            )
        if device == "cpu":
            found[module] = "cpu"
        elif isinstance(device, int) and not isinstance(device, bool) and device >= 0:
            found[module] = device
        else:
            raise UsageError(f"--device_map puts {module!r} on {device!r}: wanted a device number from 0, or 'cpu'")
    return found


def _table(text: str, problem: str) -> Mapping[object, object]:
    try:
        table = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise UsageError(problem) from None
    if not isinstance(table, dict) or not table:
        raise UsageError(problem)
    return table


def _bytes(device: int, size: object) -> int:
    match = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    number = int(size) if isinstance(size, int) and not isinstance(size, bool) else None
    if match is not None and match[2].upper() in _UNITS:
        number = int(float(match[1]) * _UNITS[match[2].upper()])
    if number is None or number <= 0:
        raise UsageError(f"--max_memory gives device {device} {size!r}: wanted bytes, or a size such as '46000MB'")
    return number
