"""One rank from its flags to its exit code: what comes before the loop, the loop, and every way to end."""

import fcntl
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from transformers.utils import logging as transformers_logging

from clockgate_trainer.checkpoint.save import Store
from clockgate_trainer.data.order import Cursor
from clockgate_trainer.errors import ConfigError, ExitCode, TrainerError
from clockgate_trainer.events import EventLog, MetricLog
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.gate.exit import leave
from clockgate_trainer.gate.gate import ClockGate, reason_names
from clockgate_trainer.gate.model import Decision, Kind, StepVerdict
from clockgate_trainer.outcome import Outcome, clear_outcome, read_outcome, write_outcome
from clockgate_trainer.train import rng
from clockgate_trainer.train.distributed import (
    Meeting,
    Place,
    SharedError,
    choose_device,
    join,
    prepare_torch,
    read_place,
)
from clockgate_trainer.train.gating import make_gate
from clockgate_trainer.train.loop import Run, train
from clockgate_trainer.train.model import build_model
from clockgate_trainer.train.network import Network
from clockgate_trainer.train.optim import make_optimizer, make_scheduler
from clockgate_trainer.train.plan import Plan, make_plan
from clockgate_trainer.train.report import Reporter, Standing
from clockgate_trainer.train.saving import Position, Saver, load_adapter
from clockgate_trainer.train.start import rehearse, together

_CRASHED = 1
_INTERRUPTED = 130
_LOCK_FILE = ".lock"
# Ranks may come to the meetings before training this far apart: one loads weights from a cache, another from the hub.
_START_PATIENCE_S = 3600.0
# After these all ranks have met a last time.
_AGREED = (ExitCode.DONE, ExitCode.STOPPED, ExitCode.STOPPED_UNSAVED)


@dataclass(frozen=True)
class _Rank:
    """Who this rank is, and what it talks to people through."""

    settings: Settings
    place: Place
    device: torch.device
    reporter: Reporter


def main(settings: Settings, environment: Mapping[str, str]) -> int:
    """Train as one rank; returns its exit code, and tells it in outcome.json.

    Among several ranks a failure ends the process at once: a normal exit would wait for ranks that do not come.
    """
    try:
        place = read_place(environment)
        device = choose_device(settings.device, place)
        with _claimed(settings.output_dir, place):
            return _run_rank(_Rank(settings, place, device, _open_logs(settings, place)), environment)
    except TrainerError as err:
        print(f"clockgate-train: {err}", file=sys.stderr)
        return err.exit_code


def _run_rank(rank: _Rank, environment: Mapping[str, str]) -> int:
    settings, place, reporter = rank.settings, rank.place, rank.reporter
    try:
        outcome = _train_rank(rank, environment)
    except TrainerError as err:
        if place.leads or not isinstance(err, SharedError):
            print(f"clockgate-train: {err}", file=sys.stderr, flush=True)
        outcome = _outcome(reporter, err.exit_code, str(err), err.ranks)
    except KeyboardInterrupt:
        print("clockgate-train: interrupted", file=sys.stderr, flush=True)
        outcome = _outcome(reporter, _INTERRUPTED, "interrupted from the keyboard")
    except Exception as err:  # noqa: BLE001 (the outermost frame: whatever it is, the outcome must be told)
        traceback.print_exc()
        outcome = _outcome(reporter, _CRASHED, f"rank {place.rank}: {type(err).__name__}: {err}", (place.rank,))
    _tell_outcome(settings, place, reporter, outcome)
    if not place.alone and outcome.code not in _AGREED:
        leave(outcome.code, reporter.flush)
    reporter.close()
    if dist.is_initialized():
        dist.destroy_process_group()
    return outcome.code


def _open_logs(settings: Settings, place: Place) -> Reporter:
    events = EventLog(settings.output_dir, place.rank)
    if not place.leads:
        return Reporter(events, None, Standing())
    try:
        clear_outcome(settings.output_dir)
    except OSError as err:
        raise ConfigError(f"the outcome of an earlier run in {settings.output_dir} cannot be removed: {err}") from err
    return Reporter(events, MetricLog(settings.output_dir), Standing())


@contextmanager
def _claimed(folder: Path, place: Place) -> Iterator[None]:
    """Hold the run folder for the leading rank. Raises ConfigError when another run has it.

    Two runs in one folder would remove each other's half-written checkpoints. The lock ends with the process at the
    latest, however that ends, so a killed run leaves nothing to clean up.
    """
    if not place.leads:
        yield
        return
    name = folder / _LOCK_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as err:
        raise ConfigError(f"{name} cannot be made ({err.strerror}): give another --output_dir") from err
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"--output_dir {folder} is in use by another run ({name} is locked): wait for it or stop it, or give "
                "another --output_dir"
            ) from None
        except OSError as err:
            raise ConfigError(f"{name} cannot be locked ({err.strerror}): give another --output_dir") from err
        yield
    finally:
        os.close(handle)


def _train_rank(rank: _Rank, environment: Mapping[str, str]) -> Outcome:
    settings, place, device, reporter = rank.settings, rank.place, rank.device, rank.reporter
    reporter.started(place, device)
    if not place.leads or not sys.stderr.isatty():
        transformers_logging.disable_progress_bar()
    prepare_torch(settings, place, device)
    join(settings, place, device)
    meeting = Meeting(place, _START_PATIENCE_S)
    plan = make_plan(settings, place, meeting, reporter)
    if plan.done_before:
        reporter.say(f"nothing to do: step {plan.total_steps} is in a checkpoint already; raise --max_steps to go on")
        return _outcome(reporter, ExitCode.DONE, "all steps were done before")
    gate = make_gate(settings, place, meeting, environment, reporter)
    try:
        gate.install_signals()
        decision = gate.launch_check()
        if decision.step_verdict is StepVerdict.STOP:
            return _stop_at_launch(gate, plan, reporter, decision)
        model = together(meeting, lambda: _load_model(settings, device, plan))
        return train(*_assemble(rank, plan, gate, model))
    finally:
        gate.close()


def _load_model(settings: Settings, device: torch.device, plan: Plan) -> object:
    model = build_model(settings, device)
    if plan.found is not None:
        load_adapter(model, plan.found.path)
    return model


def _assemble(rank: _Rank, plan: Plan, gate: ClockGate, model: object) -> tuple[Run, Position]:
    """Everything that the loop needs, and the position that it begins from. A collective."""
    settings, place, device, reporter = rank.settings, rank.place, rank.device, rank.reporter
    network = Network(model, place, device, bf16=settings.bf16)
    optimizer = make_optimizer(settings, network.parameters, device)
    scheduler = make_scheduler(settings, optimizer, plan.total_steps)
    saver = Saver(
        Store(
            settings.output_dir,
            place.rank,
            place.world_size,
            settings.save_total_limit,
            on_event=reporter.on_save_event,
        ),
        gate,
        Meeting(place, settings.vote_timeout).bring_to_first,
        reporter.standing,
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        identity=plan.identity,
    )
    data = plan.corpus.data
    rehearse(network, data, plan.corpus.pad_id, plan.split)
    if plan.state is None:
        # Ranks draw different dropout.
        rng.seed_everything(settings.seed + place.rank)
        position = Position(0, Cursor(), rng.capture(device))
    else:
        position = saver.restore(plan.state)
        rng.restore(position.random, device)
    reporter.begin(plan.total_steps, settings.logging_steps)
    run = Run(
        rank=place.rank,
        total_steps=plan.total_steps,
        save_every=settings.save_steps if settings.save_strategy == "steps" else None,
        max_grad_norm=settings.max_grad_norm,
        order_seed=settings.order_seed,
        data=data,
        pad_id=plan.corpus.pad_id,
        split=plan.split,
        network=network,
        optimizer=optimizer,
        scheduler=scheduler,
        gate=gate,
        saver=saver,
        reporter=reporter,
    )
    return run, position


def _stop_at_launch(gate: ClockGate, plan: Plan, reporter: Reporter, decision: Decision) -> Outcome:
    why = ", ".join(reason_names(decision.reasons)) or "a rank voted STOP"
    reporter.say(f"not started: {why}", "stop")
    gate.agree(Kind.EXIT, 0)
    code = ExitCode.STOPPED_UNSAVED if plan.found is None else ExitCode.STOPPED
    return _outcome(reporter, code, f"stopped by the gate before the first step: {why}", decision.blamed_ranks)


def _outcome(reporter: Reporter, code: int, reason: str, ranks: tuple[int, ...] = ()) -> Outcome:
    standing = reporter.standing
    checkpoint = None if standing.checkpoint is None else str(standing.checkpoint)
    return Outcome(int(code), reason, standing.step, checkpoint, ranks)


def _tell_outcome(settings: Settings, place: Place, reporter: Reporter, outcome: Outcome) -> None:
    reporter.log("end", code=int(outcome.code), reason=outcome.reason, step=outcome.step, ranks=list(outcome.ranks))
    if outcome.code in _AGREED and not place.leads:
        return
    try:
        # A rank that lost a peer knows less than the peer that fell over and said why.
        if outcome.code == ExitCode.PEER_LOST and read_outcome(settings.output_dir) is not None:
            return
        write_outcome(settings.output_dir, outcome)
    except (OSError, ValueError) as err:
        print(f"clockgate-train: outcome.json cannot be written: {err}", file=sys.stderr)
