"""One rank from its flags to its exit code: what comes before the loop, the loop, and every way to end."""

import os
import sys
import traceback
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.distributed as dist

from clockgate_trainer.alert import demand_program, read_targets
from clockgate_trainer.attempts import clear_attempts
from clockgate_trainer.checkpoint.claim import claimed
from clockgate_trainer.checkpoint.save import Store
from clockgate_trainer.data.order import Cursor
from clockgate_trainer.errors import ConfigError, ExitCode, NoProgressError, TrainerError
from clockgate_trainer.events import EventLog, MetricLog
from clockgate_trainer.flags.evaluation import TRAIN_LOSS
from clockgate_trainer.flags.optimizers import OPTIMIZERS
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.gate.exit import leave
from clockgate_trainer.gate.gate import ClockGate, reason_names
from clockgate_trainer.gate.model import Decision, Kind, StepVerdict
from clockgate_trainer.outcome import Outcome, clear_outcome, read_outcome, write_outcome
from clockgate_trainer.tell import tell
from clockgate_trainer.train import rng
from clockgate_trainer.train.attempt import demand_progress
from clockgate_trainer.train.distributed import (
    Meeting,
    Place,
    SharedError,
    choose_device,
    join,
    prepare_torch,
    read_place,
)
from clockgate_trainer.train.evaluating import Examiner
from clockgate_trainer.train.exam import Exam
from clockgate_trainer.train.finish import keep_figures, return_to_best
from clockgate_trainer.train.gating import make_gate
from clockgate_trainer.train.homes import Homes, find_homes
from clockgate_trainer.train.loop import Run, train
from clockgate_trainer.train.network import Network
from clockgate_trainer.train.parts import Parts
from clockgate_trainer.train.plan import Plan, make_plan
from clockgate_trainer.train.precision import compute_dtype
from clockgate_trainer.train.predicting import Predictor
from clockgate_trainer.train.report import Reporter, Standing
from clockgate_trainer.train.saving import Position, Saver
from clockgate_trainer.train.scorer import Scorer
from clockgate_trainer.train.shortage import is_shortage, rehearse
from clockgate_trainer.train.sinks import Sinks
from clockgate_trainer.train.start import together
from clockgate_trainer.train.trained import Trained, count_parameters

_CRASHED = 1
_INTERRUPTED = 130
# Ranks may come to the meetings before training this far apart: one loads weights from a cache, another from the hub.
_START_PATIENCE_S = 3600.0
# After these all ranks have met a last time.
_AGREED = (ExitCode.DONE, ExitCode.STOPPED, ExitCode.STOPPED_UNSAVED)


@dataclass(frozen=True)
class _Rank:
    """Who this rank is, what it trains, and what it talks to people through."""

    settings: Settings
    parts: Parts
    place: Place
    device: torch.device
    reporter: Reporter


def main(settings: Settings, environment: Mapping[str, str], parts: Parts) -> int:
    """Train what `parts` make as one rank; returns its exit code, and tells it in outcome.json.

    Among several ranks a failure ends the process at once: a normal exit would wait for ranks that do not come.
    """
    try:
        place = read_place(environment)
        device = choose_device(settings.device, place)
        with claimed(settings.output_dir) if place.leads else nullcontext():
            return _run_rank(_Rank(settings, parts, place, device, _open_logs(settings, place)), environment)
    except TrainerError as err:
        tell(f"clockgate-train: {err}")
        return err.exit_code


def _run_rank(rank: _Rank, environment: Mapping[str, str]) -> int:
    settings, place, reporter = rank.settings, rank.place, rank.reporter
    try:
        outcome = _train_rank(rank, environment)
    except TrainerError as err:
        if place.leads or not isinstance(err, (SharedError, NoProgressError)):
            tell(f"clockgate-train: {err}")
        outcome = _outcome(reporter, err.exit_code, str(err), err.ranks)
    except KeyboardInterrupt:
        tell("clockgate-train: interrupted")
        outcome = _outcome(reporter, _INTERRUPTED, "interrupted from the keyboard")
    except Exception as err:  # noqa: BLE001 (the outermost frame: whatever it is, the outcome must be told)
        outcome = _short_outcome(rank, err) if is_shortage(err) else _crashed(rank, err)
    _tell_outcome(settings, place, reporter, outcome)
    if not place.alone and outcome.code not in _AGREED:
        leave(outcome.code, reporter.flush)
    reporter.close()
    if dist.is_initialized():
        dist.destroy_process_group()
    return outcome.code


def _crashed(rank: _Rank, error: Exception) -> Outcome:
    tell(traceback.format_exc().rstrip())
    number = rank.place.rank
    return _outcome(rank.reporter, _CRASHED, f"rank {number}: {type(error).__name__}: {error}", (number,))


def _short_outcome(rank: _Rank, error: Exception) -> Outcome:
    """Memory ran short where no other rank could be told: in loading, in the exchange of gradients, in the update."""
    number = rank.place.rank
    cause = next(iter(str(error).splitlines()), type(error).__name__)
    reason = f"rank {number} ran out of memory ({cause}). {rank.parts.advise(rank.settings, rank.device)}"
    tell(f"clockgate-train: {reason}")
    return _outcome(rank.reporter, ExitCode.CONFIG, reason, (number,))


def _open_logs(settings: Settings, place: Place) -> Reporter:
    targets = read_targets(settings.alert_webhook, settings.alert_exec, os.environ)
    events = EventLog(settings.output_dir, place.rank)
    if not place.leads:
        return Reporter(events, None, Standing())
    demand_program(targets)
    try:
        clear_outcome(settings.output_dir)
    except OSError as err:
        raise ConfigError(f"the outcome of an earlier run in {settings.output_dir} cannot be removed: {err}") from err
    reporter = Reporter(events, MetricLog(settings.output_dir), Standing())
    reporter.call_people(targets, after_hold_s=settings.alert_after_hold, job=settings.job)
    return reporter


def _train_rank(rank: _Rank, environment: Mapping[str, str]) -> Outcome:
    settings, place, device, reporter = rank.settings, rank.place, rank.device, rank.reporter
    reporter.started(place, device)
    if not place.leads or not sys.stderr.isatty():
        rank.parts.quieten()
    prepare_torch(settings, place, device)
    join(settings, place, device)
    meeting = Meeting(place, _START_PATIENCE_S)
    homes = find_homes(meeting, place, settings.output_dir)
    with ExitStack() as held:
        _claim_home(held, meeting, place, homes, settings)
        return _train_at_home(rank, environment, meeting, homes)


def _claim_home(held: ExitStack, meeting: Meeting, place: Place, homes: Homes, settings: Settings) -> None:
    """Hold the run folders that nodes have of their own too, beside the leading rank's. A collective."""

    def claim() -> None:
        if place.rank in homes.writers and not place.leads:
            held.enter_context(claimed(settings.output_dir))

    together(meeting, claim)


def _train_at_home(rank: _Rank, environment: Mapping[str, str], meeting: Meeting, homes: Homes) -> Outcome:
    settings, place, reporter = rank.settings, rank.place, rank.reporter
    if not homes.shared:
        writers = ", ".join(map(str, homes.writers))
        reporter.say(f"the run folder is not shared: ranks {writers} write a checkpoint each, in their own")
    plan = make_plan(settings, place, meeting, reporter, rank.parts.read, homes=homes)
    if plan.done_before and not settings.do_predict:
        reporter.say(f"nothing to do: step {plan.total_steps} is in a checkpoint already; raise --max_steps to go on")
        return _outcome(reporter, ExitCode.DONE, "all steps were done before")
    sinks = together(meeting, lambda: rank.parts.make_sinks(settings) if place.leads else ())
    if sinks:
        reporter.send_to(Sinks(sinks, reporter.say))
    gate = make_gate(settings, place, meeting, environment, reporter)
    try:
        gate.install_signals()
        decision = gate.launch_check()
        if decision.step_verdict is StepVerdict.STOP:
            return _stop_at_launch(gate, plan, reporter, decision)
        model = together(meeting, lambda: _load_model(rank, plan))
        if plan.done_before or not settings.do_train:
            return _predict(rank, plan, model, _untrained(rank, plan, meeting, model), gate=gate, meeting=meeting)
        demand_progress(meeting, place, settings.output_dir, plan.found, reporter)
        run, position = _assemble(rank, plan, gate, model, homes)
        outcome = train(run, position)
        if settings.do_predict:
            # The vote on EXIT that ends training leaves signals ignored.
            gate.install_signals()
        outcome = _finished(rank, meeting, run, outcome)
        return _predict(rank, plan, model, outcome, gate=gate, meeting=meeting) if settings.do_predict else outcome
    finally:
        gate.close()


def _finished(rank: _Rank, meeting: Meeting, run: Run, outcome: Outcome) -> Outcome:
    """What follows the loop, when it did all its steps. A collective."""
    folder, reporter = rank.settings.output_dir, rank.reporter
    if outcome.code != ExitCode.DONE:
        return outcome
    if rank.place.leads and run.examiner is not None and run.examiner.latest is not None:
        keep_figures(run.examiner.latest, folder, reporter)
    return _with_best(rank, meeting, run.network.model, outcome)


def _untrained(rank: _Rank, plan: Plan, meeting: Meeting, model: object) -> Outcome:
    """The outcome of a start that takes no step, with the weights that the run ended with. A collective."""
    settings, reporter = rank.settings, rank.reporter
    if plan.done_before and settings.do_train:
        return _with_best(rank, meeting, model, _outcome(reporter, ExitCode.DONE, "all steps were done before"))
    if plan.found is None:
        reporter.say(f"{settings.output_dir} holds no checkpoint: weights that this run has not trained answer")
    return _outcome(reporter, ExitCode.DONE, "no step was wanted")


def _with_best(rank: _Rank, meeting: Meeting, model: object, outcome: Outcome) -> Outcome:
    """The outcome, once --load_best_model_at_end has put the best weights into `model`. A collective."""
    settings = rank.settings
    if not settings.load_best_model_at_end:
        return outcome
    load = partial(rank.parts.load_adapter, model)
    return return_to_best(outcome, settings.output_dir, meeting, rank.reporter, load)


def _predict(rank: _Rank, plan: Plan, model: object, outcome: Outcome, *, gate: ClockGate, meeting: Meeting) -> Outcome:
    """Predictions of a run that did all its steps, or wanted none; of a run that was stopped none. A collective."""
    if outcome.code != ExitCode.DONE or plan.held is None:
        return outcome
    settings = rank.settings
    speaker = together(meeting, lambda: rank.parts.make_speaker(settings, model))
    size, folder = settings.per_device_eval_batch_size, settings.output_dir
    return Predictor(speaker, plan.held, size, folder, rank.place, gate, meeting, rank.reporter).predict(outcome)


def _load_model(rank: _Rank, plan: Plan) -> object:
    model = rank.parts.build_model(rank.settings, rank.device)
    if plan.found is not None:
        rank.parts.load_adapter(model, plan.found.path)
    return model


def _assemble(rank: _Rank, plan: Plan, gate: ClockGate, model: object, homes: Homes) -> tuple[Run, Position]:
    """Everything that the loop needs, and the position that it begins from. A collective."""
    settings, place, device, reporter = rank.settings, rank.place, rank.device, rank.reporter
    network = Network(model, place, device, compute=compute_dtype(settings))
    optimizer = rank.parts.make_optimizer(settings, network.parameters, device)
    scheduler = rank.parts.make_scheduler(settings, optimizer, plan.total_steps)
    meeting = Meeting(place, settings.vote_timeout)
    saver = Saver(
        Store(
            settings.output_dir,
            place.rank,
            place.world_size,
            settings.save_total_limit,
            on_event=reporter.on_save_event,
            write_grace_s=settings.save_timeout,
            writers=homes.writers,
        ),
        gate,
        meeting.bring_to_first if homes.shared else meeting.gather,
        reporter.standing,
        Trained(
            model,
            optimizer,
            scheduler,
            network.loss_scale,
            lambda folder, tensors: rank.parts.save(settings, model, folder, tensors),
        ),
        identity=plan.identity,
        spread=meeting.spread,
        async_save=settings.async_save,
        on_divergence=settings.on_divergence,
        score_steps=settings.save_steps if settings.best_metric == TRAIN_LOSS else None,
    )

    def advise() -> str:
        return rank.parts.advise(settings, device)

    kind = OPTIMIZERS[settings.optim]
    split = rehearse(
        network,
        plan.feed,
        plan.split,
        meeting,
        may_shrink=settings.oom_fallback,
        state_bytes=0.0 if kind.paged else kind.moments * sum(each.numel() for each in network.parameters),
        advise=advise,
        say=reporter.say,
    )
    if plan.state is None:
        # Ranks draw different dropout.
        rng.seed_everything(settings.seed + place.rank)
        position = Position(0, Cursor(), rng.capture(device))
    elif plan.state.rank_state:
        position = saver.restore(plan.state)
        rng.restore(position.random, device)
    else:
        # Of another number of ranks: no rank goes on from the random numbers of another one.
        rng.seed_everything(settings.seed + place.rank + place.world_size * plan.state.step)
        position = replace(saver.restore(plan.state), random=rng.capture(device))
    trained, every = count_parameters(model)
    reporter.say(f"{trained:,} of {every:,} parameters are trained ({trained / every:.2%})", "parameters")
    reporter.begin(plan.total_steps, settings.logging_steps, model)
    run = Run(
        rank=place.rank,
        total_steps=plan.total_steps,
        save_every=settings.save_steps if settings.save_strategy == "steps" else None,
        max_grad_norm=settings.max_grad_norm,
        max_bad_steps=settings.max_bad_steps,
        feed=plan.feed,
        split=split,
        network=network,
        optimizer=optimizer,
        scheduler=scheduler,
        gate=gate,
        saver=saver,
        reporter=reporter,
        may_shrink=settings.oom_fallback,
        advise=advise,
        examiner=None if plan.exam is None else _examiner(rank, plan.exam, network, gate, meeting),
    )
    return run, position


def _examiner(rank: _Rank, exam: Exam, network: Network, gate: ClockGate, meeting: Meeting) -> Examiner:
    scorer = Scorer(network.model, rank.device, compute=compute_dtype(rank.settings))
    return Examiner(exam, scorer, gate, meeting.gather, rank.reporter, place=rank.place, device=rank.device)


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
        if outcome.code in _AGREED:
            clear_attempts(settings.output_dir)
    except (OSError, ValueError) as err:
        tell(f"clockgate-train: outcome.json cannot be written: {err}")
