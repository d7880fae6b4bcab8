"""`clockgate-train plan`: says, before any download, whether a run fits, where it goes and how fast it can be."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

import torch

from clockgate_trainer.errors import ExitCode, TrainerError, UsageError
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.planner.devices import DEVICE_NAMES, Device, named_device, recognised
from clockgate_trainer.planner.inventory import read_config, read_shape
from clockgate_trainer.planner.memory import GIB
from clockgate_trainer.planner.plan import Machines, RunPlan, make_run_plan
from clockgate_trainer.planner.show import text_of

_BYTES_PER_GBIT = 1e9 / 8
_DEFAULT_GPU = "h200"
_DEFAULT_LINK_GBIT = 10.0


def main(argv: Sequence[str]) -> int:
    """Plan the command line `argv`, which comes after the word plan; 0: it fits, 1: it does not."""
    options, rest = _parser().parse_known_args(list(argv))
    try:
        settings = parse(rest)
        config, published = read_config(settings)
        machines, note = _machines(options, alone=settings.device_map is not None)
        plan = make_run_plan(settings, read_shape(config), machines)
    except TrainerError as error:
        print(f"clockgate-train plan: {error}", file=sys.stderr)
        return error.exit_code
    notes = [note] if note else []
    if published:
        notes.append(f"{settings.model_name_or_path} is planned from its published shape; nothing was downloaded")
    if options.json:
        print(json.dumps(_plain(plan, notes), indent=2))
    else:
        print(text_of(settings, plan, notes))
    return ExitCode.DONE if plan.fits else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="clockgate-train plan",
        description="Works out memory, placement, batch and speed of a training command line. Reads config.json alone.",
        epilog="takes every flag of training as well. exit codes: 0 it fits, 1 it does not, 2 usage, 78 no such model",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--gpu", metavar="NAME", help=f"one of {', '.join(DEVICE_NAMES)}; default: this machine's, else h200"
    )
    parser.add_argument("--gpus", metavar="N", type=int, help="devices per node; default: this machine's, else 1")
    parser.add_argument("--nodes", metavar="N", type=int, default=1, help="nodes (default: 1)")
    parser.add_argument("--gpu_memory_gib", metavar="X", type=float, help="memory of a device, if other than usual")
    parser.add_argument(
        "--link_gbit", metavar="X", type=float, help="speed between nodes (default: 10), or between devices on one node"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object with all figures in bytes and seconds")
    return parser


def _machines(options: argparse.Namespace, *, alone: bool) -> tuple[Machines, str | None]:
    for name in ("gpus", "nodes", "gpu_memory_gib", "link_gbit"):
        value = getattr(options, name)
        if value is not None and not 0 < value < 1e9:
            raise UsageError(f"--{name} is {value:g}: wanted more than 0")
    device, count, note = _device(options)
    gpus = options.gpus or count
    link = device.link_bytes_s if options.nodes == 1 else _DEFAULT_LINK_GBIT * _BYTES_PER_GBIT
    if options.link_gbit is not None:
        link = options.link_gbit * _BYTES_PER_GBIT
    return Machines(device, options.nodes, gpus, 1 if alone else options.nodes * gpus, link), note


def _device(options: argparse.Namespace) -> tuple[Device, int, str | None]:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    note = None
    if options.gpu is not None:
        device = named_device(options.gpu)
    elif count:
        seen = torch.cuda.get_device_properties(0)
        device = recognised(seen.name, seen.total_memory) or named_device(_DEFAULT_GPU)
        if device.name not in seen.name.lower().replace(" ", ""):
            note = f"speed is that of --gpu {device.name}: {seen.name} is not in the table"
    else:
        device = named_device(_DEFAULT_GPU)
        note = f"this machine has no GPU: planned for --gpu {_DEFAULT_GPU}"
    if options.gpu_memory_gib is not None:
        device = Device(
            device.name, options.gpu_memory_gib * GIB, device.bf16_flops, device.memory_bytes_s, device.link_bytes_s
        )
    return device, max(count, 1), note


def _plain(plan: RunPlan, notes: Sequence[str]) -> dict[str, object]:
    return {
        "fits": plan.fits,
        "parallelism": plan.layout.parallelism.value,
        "why": plan.layout.why,
        "layers_on_device": list(plan.layout.layers_on),
        "bytes_on_device": [round(size) for size in plan.layout.bytes_on],
        "parameters": plan.shape.parameters,
        "trained_parameters": plan.trained.parameters,
        "memory_bytes": {name: round(size) for name, size in asdict(plan.parts).items()},
        "peak_bytes": round(plan.parts.total),
        "device_memory_bytes": round(plan.machines.device.memory_bytes),
        "data_parallel_ranks": plan.replicas,
        "rows_per_step": plan.rows_per_step,
        "tokens_per_step": plan.speed.tokens,
        "steps": plan.steps,
        "step_floor_s": plan.speed.floor_s,
        "step_likely_s": plan.speed.likely_s,
        "exchange_s": plan.speed.exchange_s,
        "exposed_exchange_share": plan.speed.exposed_share,
        "advice": list(plan.advice),
        "notes": list(notes),
    }
