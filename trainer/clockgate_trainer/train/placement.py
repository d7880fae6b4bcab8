"""Which device holds which part of the model, from --device_map and --max_memory. Decides; moves nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.memory_flags import DeviceMap, read_device_map, read_max_memory
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.planner.inventory import Inventory, read_config
from clockgate_trainer.planner.layout import Parallelism
from clockgate_trainer.planner.memory import GIB
from clockgate_trainer.planner.modules import device_map
from clockgate_trainer.planner.plan import lay_out

# Of --max_memory_MB, which qlora.py counts in millions of bytes.
_MB = 1_000_000


@dataclass(frozen=True)
class Placement:
    """`modules`: a device for each module name, as accelerate takes it; `note`: a sentence for people, if needed."""

    modules: Mapping[str, torch.device]
    note: str | None = None

    @property
    def split(self) -> bool:
        """Whether the model lies on several devices."""
        return len(set(self.modules.values())) > 1


def place_model(settings: Settings, device: torch.device, ranks: int) -> Placement:
    """Where the model of a rank goes whose own device is `device`.

    Raises ConfigError when --device_map cannot be followed by several ranks or on this machine, or when the layers fit
    on no set of devices.
    """
    whole = Placement({"": device})
    if settings.device_map is None:
        return whole
    wanted = read_device_map(settings.device_map)
    if wanted is not None:
        return _whole_if_trained(settings, _explicit(wanted, device, ranks))
    if ranks > 1:
        raise ConfigError(
            f"--device_map auto in {ranks} ranks: each rank trains a copy on a device of its own. Leave it "
            "out, or start one process to split the layers"
        )
    if device.type != "cuda":
        return whole
    return _automatic(settings, _budgets(settings, torch.cuda.device_count()))


def _whole_if_trained(settings: Settings, placement: Placement) -> Placement:
    if settings.full_finetune and placement.split:
        raise ConfigError(
            "--full_finetune trains whole copies and --device_map spreads the layers: put all of it on one device, as "
            "in \"{'': 0}\", or leave --device_map out"
        )
    return placement


def _explicit(wanted: DeviceMap, device: torch.device, ranks: int) -> Placement:
    found = {
        name: torch.device("cpu") if where == "cpu" else torch.device("cuda", int(where))
        for name, where in wanted.items()
    }
    missing = sorted({str(each) for each in found.values() if each.type == "cuda" and not _exists(each)})
    if missing:
        raise ConfigError(f"--device_map names {', '.join(missing)}: this machine has {torch.cuda.device_count()} GPUs")
    kinds = {each.type for each in found.values()}
    if kinds != {device.type}:
        raise ConfigError(
            f"--device_map mixes {' and '.join(sorted(kinds))} and this run computes on {device.type}: "
            "a quantised layer trains on one kind of device. Name only such devices, or give --device"
        )
    if ranks > 1 and set(found.values()) != {device}:
        named = ", ".join(sorted(str(each) for each in set(found.values())))
        raise ConfigError(
            f"--device_map puts the model on {named} and this rank's own device is {device}: leave it out when "
            "there are several ranks"
        )
    return Placement(found)


def _exists(device: torch.device) -> bool:
    return device.index is not None and device.index < torch.cuda.device_count()


def _budgets(settings: Settings, count: int) -> list[float]:
    """Bytes that may be used of each CUDA device: what is free, and not more than the flags allow."""
    allowed: Mapping[int, int] = {} if settings.max_memory is None else read_max_memory(settings.max_memory)
    beyond = sorted(number for number in allowed if number >= count)
    if beyond:
        raise ConfigError(f"--max_memory names device {beyond[0]}: this machine has {count}")
    limit = settings.max_memory_MB * _MB
    free = [torch.cuda.mem_get_info(number)[0] for number in range(count)]
    return [float(min(size, allowed.get(number, limit))) for number, size in enumerate(free)]


def _automatic(settings: Settings, budgets: Sequence[float]) -> Placement:
    config, _ = read_config(settings)
    inventory = Inventory(config)
    parts, layout = lay_out(settings, inventory.shape(), budgets, ranks=1)
    if layout.parallelism is Parallelism.NONE:
        raise ConfigError(
            f"--device_map auto: a copy takes about {parts.total / GIB:.1f} GiB, and the devices may give "
            f"{', '.join(f'{size / GIB:.1f}' for size in budgets)}. clockgate-train plan with the same flags says what "
            "to change"
        )
    if layout.parallelism is Parallelism.DATA:
        return Placement({"": torch.device("cuda", 0)}, "the model fits on one device: layers are not split")
    names = device_map(inventory.modules(), layout.layers_on)
    counts = ", ".join(f"{count} on device {number}" for number, count in enumerate(layout.layers_on))
    return Placement(
        {name: torch.device("cuda", number) for name, number in names.items()}, f"layers are split: {counts}"
    )
