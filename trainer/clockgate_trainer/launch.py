"""`clockgate-train launch`: torchrun's arguments, and the ranks' own exit code at the end.

    clockgate-train launch --nproc_per_node 2 --output_dir runs/a --dataset rows.jsonl
    clockgate-train launch --nnodes 2 --rdzv_backend c10d --rdzv_endpoint HOST:29400 --nproc_per_node 8 -- TRAIN FLAGS

torchrun turns every failure into 1, kills ranks that are asked to save, and starts a run again that the gate stopped.
Here signals reach the ranks and nobody is killed while it saves, and only a lost rank is started again
(--max_restarts).
"""

import argparse
import copy
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, TracebackType

from torch.distributed import DistError
from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError

from clockgate_trainer.errors import ConfigError, ExitCode, TrainerError, UsageError
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.outcome import Outcome, clear_outcome, read_outcome, write_outcome

_PROGRAM = "clockgate-train launch"
# What a run of ours cannot be: the program is fixed.
_REFUSED = ("-m", "--module", "--no-python", "--no_python", "--run-path", "--run_path")
_HANDED_AS_THEY_ARE = (signal.SIGUSR1, signal.SIGUSR2)
_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# A rank's own verdict on the run, the most telling first; 79 only says that another rank had trouble.
_TELLING = (
    (ExitCode.USAGE, "the flags are wrong"),
    (ExitCode.CONFIG, "data, model or daemon are not as asked"),
    (ExitCode.DESYNC, "ranks were not at the same point"),
    (ExitCode.STOPPED_UNSAVED, "stopped without a checkpoint"),
    (ExitCode.STOPPED, "stopped with a checkpoint; start again to go on"),
)
# Whose fault it is, is known to the launcher for these two; the ranks know better in the other cases.
_OWN_FAULT = (ExitCode.USAGE, ExitCode.CONFIG)


@dataclass(frozen=True)
class Ending:
    """How the ranks of this node ended: one exit code, one sentence, and the ranks at fault as far as known."""

    code: int
    reason: str
    ranks: tuple[int, ...] = ()


def main(argv: Sequence[str]) -> int:
    """Launch training; `argv` comes after the word launch. Returns the exit code of the contract."""
    try:
        torch_words, train_words = split(argv)
        if "-h" in torch_words or "--help" in torch_words:
            print(_help())
            return ExitCode.DONE
        # Parsed here too: a typing error is told once, not once per rank, and the run folder is needed for the outcome.
        folder = parse(train_words).output_dir
    except TrainerError as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return error.exit_code
    return run("clockgate_trainer", argv, folder=folder)


def run(module: str, argv: Sequence[str], *, folder: Path | None = None) -> int:
    """Run `python -m module` in every rank of this node and return one exit code for all.

    `argv` are torchrun's arguments and the module's, `--` between them where they could be mixed up. Main thread
    only. `folder`, when given and there at the end, gets outcome.json completed with what only the launcher knows: a
    rank that was killed.
    """
    try:
        args = _arguments(module, argv)
        if folder is not None:
            _forget_outcome(folder)
    except TrainerError as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return error.exit_code
    with tempfile.TemporaryDirectory(prefix="clockgate-launch-") as scratch:
        args.log_dir = args.log_dir or scratch
        ending = _run_with_restarts(args)
    if ending.code != ExitCode.DONE:
        print(f"{_PROGRAM}: exit {ending.code}: {ending.reason}", file=sys.stderr)
    if folder is not None and folder.is_dir():
        _complete_outcome(folder, ending)
    return ending.code


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part torchrun's words from the rank program's: by name up to `--`, after it everything is the program's.

    Raises UsageError for torchrun options that choose another program.
    """
    options = {name: action for action in torchrun.get_args_parser()._actions for name in action.option_strings}
    torch_words: list[str] = []
    rank_words: list[str] = []
    words = iter(argv)
    for word in words:
        name, equals, _ = word.partition("=")
        if word == "--":
            rank_words.extend(words)
        elif name in _REFUSED:
            raise UsageError(f"{name} is not for launch, which runs clockgate-train; use torchrun for another program")
        elif name not in options:
            rank_words.append(word)
        else:
            torch_words.append(word)
            if not equals and options[name].nargs != 0:
                torch_words.extend(value for value in [next(words, None)] if value is not None)
    return torch_words, rank_words


def judge(codes: Mapping[int, int], *, stop_asked: bool) -> Ending:
    """One ending for the exit codes of the ranks that did not end with 0; a negative code is minus a signal's number.

    In this order: the most telling of 2, 78, 77, 76 and 75 on any rank; 76 when a stop was asked and signals ended
    all; 79 when a rank was killed, or fell over while another reported 79; else the code of the lowest rank that fell
    over. SIGTERM is what the agent sends to the rest, so a rank that it ended is at fault only if no other rank is.
    """
    if not codes:
        return Ending(ExitCode.DONE, "all ranks are done")
    for code, meaning in _TELLING:
        ranks = _with_code(codes, code)
        if ranks:
            return Ending(
                int(code), f"{_named(ranks)} ended with {code:d}: {meaning}", ranks if code in _OWN_FAULT else ()
            )
    if stop_asked and all(code < 0 for code in codes.values()):
        return Ending(ExitCode.STOPPED_UNSAVED, "stopped on request before a rank could save")
    killed = {rank: code for rank, code in codes.items() if code < 0}
    loudly = {rank: code for rank, code in killed.items() if code != -signal.SIGTERM}
    fallen = {rank: code for rank, code in codes.items() if code > 0 and code != ExitCode.PEER_LOST}
    if loudly or len(killed) == len(codes):
        guilty = loudly or killed
        told = ", ".join(f"rank {rank} was killed by {_signal_name(-code)}" for rank, code in sorted(guilty.items()))
        return Ending(ExitCode.PEER_LOST, told, tuple(sorted(guilty)))
    told = ", ".join(f"rank {rank} ended with {code}" for rank, code in sorted(fallen.items()))
    if not fallen:
        lost = _with_code(codes, ExitCode.PEER_LOST)
        return Ending(ExitCode.PEER_LOST, f"{_named(lost)} ended with 79: a peer died or did not answer")
    final = ExitCode.PEER_LOST if ExitCode.PEER_LOST in codes.values() else fallen[min(fallen)]
    return Ending(int(final), f"{told}: see its log", tuple(sorted(fallen)))


def complete(found: Outcome | None, ending: Ending) -> Outcome:
    """What a rank wrote, if any did, with the launcher's code and the ranks that only the launcher saw fall."""
    if found is None:
        return Outcome(code=ending.code, reason=ending.reason, step=None, checkpoint=None, ranks=ending.ranks)
    # All well on this node says nothing about the ranks of another, which may have written it.
    if ending.code == ExitCode.DONE or (found.code == ending.code and set(ending.ranks) <= set(found.ranks)):
        return found
    return replace(
        found, code=ending.code, reason=f"{ending.reason} ({found.reason})", ranks=ending.ranks or found.ranks
    )


def _arguments(module: str, argv: Sequence[str]) -> argparse.Namespace:
    """Torchrun's namespace for `module`. Raises UsageError."""
    torch_words, rank_words = split(argv)
    try:
        args = torchrun.get_args_parser().parse_args([*torch_words, "--module", module, *rank_words])
    except SystemExit as refusal:
        # argparse has told the person what is wrong.
        raise UsageError(f"see {_PROGRAM} --help") from refusal
    try:
        _, max_nodes = torchrun.parse_min_max_nnodes(args.nnodes)
        ranks_here = torchrun.determine_local_world_size(args.nproc_per_node)
    except (ValueError, RuntimeError) as error:
        raise UsageError(f"--nnodes {args.nnodes} --nproc_per_node {args.nproc_per_node}: {error}") from error
    if ranks_here < 1:
        raise UsageError(f"--nproc_per_node is {args.nproc_per_node}: wanted 1 or more")
    if max_nodes == 1 and args.local_addr is None:
        # One node needs no name of its own that resolves.
        args.local_addr = "127.0.0.1"
    # An even share of the cores: torchrun's default of 1 starves a run on CPUs, no limit overloads the machine.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // ranks_here)))
    handed = {number.name for number in (*_HANDED_AS_THEY_ARE, *_STOPPING)}
    left = [name for name in args.signals_to_handle.split(",") if name.strip() not in handed]
    # On these torchrun ends the ranks itself, within 30 s and without a save.
    args.signals_to_handle = ",".join(left) or "SIGQUIT"
    return args


def _run_with_restarts(args: argparse.Namespace) -> Ending:
    """Run; again for each of --max_restarts while a rank is lost or fell over. What ended on purpose is not repeated.

    torchrun's own restart cannot tell a lost rank from a run that the gate stopped.
    """
    left, args.max_restarts = args.max_restarts, 0
    attempt = 0
    while True:
        attempt_args = copy.copy(args)
        if attempt and args.rdzv_id != "none":
            # The meeting of the first attempt is closed for good.
            attempt_args.rdzv_id = f"{args.rdzv_id}-{attempt}"
        with _SignalHandover() as handover:
            ending = _run_once(attempt_args, handover)
        on_purpose = {ExitCode.DONE, *(code for code, _ in _TELLING)}
        if ending.code in on_purpose or handover.stop_asked or attempt == left:
            return ending
        attempt += 1
        print(f"{_PROGRAM}: {ending.reason}; restart {attempt} of {left}", file=sys.stderr)


def _run_once(args: argparse.Namespace, handover: "_SignalHandover") -> Ending:
    # Its report on exit codes is ours to give, in the words of the contract.
    logging.getLogger("torch.distributed.elastic.multiprocessing.api").setLevel(logging.CRITICAL)
    try:
        torchrun.run(args)  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
        return judge(codes, stop_asked=handover.stop_asked)
    except SignalException as error:
        return Ending(ExitCode.STOPPED_UNSAVED, f"ended by {error.sigval.name} without a save")
    except _StoppedEarly:
        return Ending(ExitCode.STOPPED_UNSAVED, "stopped on request before a rank was started")
    except (RendezvousError, DistError) as error:
        where = args.rdzv_endpoint or f"{args.master_addr}:{args.master_port}"
        cause = str(error) or type(error).__name__
        return Ending(ExitCode.PEER_LOST, f"the nodes did not meet at {where} ({cause}): start all with this endpoint")
    return judge({}, stop_asked=handover.stop_asked)


class _StoppedEarly(BaseException):
    """A stop was asked while there was no rank to hand it to. Not an Exception: torch retries on those."""


class _SignalHandover:
    """While entered, signals of the launcher go to its ranks, and the launcher waits for what they make of them.

    SIGUSR1 and SIGUSR2 as they are; SIGTERM, SIGINT and SIGHUP as SIGTERM (save and exit); a second SIGINT as SIGKILL.
    Ranks start with the user signals blocked (they inherit the main thread's mask) and unblock them when they are
    ready, so that an early one is not lost and kills nobody.
    """

    def __init__(self) -> None:
        self.stop_asked = False
        self._interrupts = 0
        self._previous: dict[signal.Signals, object] = {}
        self._done = threading.Event()
        # Somebody has to take the signals that the main thread blocks; Python then runs their handlers in the main one.
        self._taker = threading.Thread(target=self._take, name="clockgate-signals", daemon=True)

    def __enter__(self) -> "_SignalHandover":
        for number in (*_HANDED_AS_THEY_ARE, *_STOPPING):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a job in the background
                self._previous[number] = signal.signal(number, self._on_signal)
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDED_AS_THEY_ARE)
        self._taker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal returned
        self._done.set()
        self._taker.join()

    def _take(self) -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDED_AS_THEY_ARE)
        self._done.wait()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        ranks = rank_processes(os.getpid())
        sent = signal.Signals(number)
        if sent in _STOPPING:
            self.stop_asked = True
            self._interrupts += sent is signal.SIGINT
            if not ranks:
                raise _StoppedEarly
            sent = signal.SIGKILL if self._interrupts > 1 else signal.SIGTERM
        told = "ended without a save" if sent is signal.SIGKILL else f"handed {sent.name}"
        print(f"{_PROGRAM}: {signal.Signals(number).name}: {len(ranks)} ranks {told}", file=sys.stderr)
        for pid in ranks:
            try:
                os.kill(pid, sent)
            except ProcessLookupError:
                continue  # it ended meanwhile


def rank_processes(agent: int) -> list[int]:
    """Process ids of the running ranks of the agent with process id `agent`: its children that lead a session."""
    ranks = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            stat = (entry / "stat").read_text(encoding="ascii", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        # The command's name, in parentheses, may hold anything: state, parent, group and session follow the last one.
        state, parent, _, session, *_ = stat.rpartition(")")[2].split()
        if int(parent) == agent and int(session) == int(entry.name) and state != "Z":
            ranks.append(int(entry.name))
    return sorted(ranks)


def _forget_outcome(folder: Path) -> None:
    try:
        clear_outcome(folder)
    except OSError as error:
        raise ConfigError(f"the outcome of an earlier run in {folder} cannot be removed: {error}") from error


def _complete_outcome(folder: Path, ending: Ending) -> None:
    try:
        found = read_outcome(folder)
    except ValueError as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        found = None
    outcome = complete(found, ending)
    if outcome == found:
        return
    try:
        write_outcome(folder, outcome)
    except OSError as error:
        print(f"{_PROGRAM}: outcome.json could not be written in {folder}: {error}", file=sys.stderr)


def _help() -> str:
    parser = torchrun.get_args_parser()
    usage = f"usage: {_PROGRAM} [torchrun arguments] [--] [flags of clockgate-train]"
    return f"{usage}\n\n{__doc__}\ntorchrun arguments:\n{parser.format_help()}"


def _with_code(codes: Mapping[int, int], wanted: int) -> tuple[int, ...]:
    return tuple(sorted(rank for rank, code in codes.items() if code == wanted))


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
