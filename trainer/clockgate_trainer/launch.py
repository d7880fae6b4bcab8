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
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType

import torch
from torch.distributed import DistError
from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError

from clockgate_trainer.attempts import read_attempts
from clockgate_trainer.checkpoint.claim import claimed
from clockgate_trainer.checkpoint.files import HOST
from clockgate_trainer.checkpoint.layout import step_in_name
from clockgate_trainer.checkpoint.manifest import Manifest
from clockgate_trainer.checkpoint.verify import read_manifest
from clockgate_trainer.early import STOPPING
from clockgate_trainer.ending import TELLING, Ending, Standing, complete, judge, with_checkpoint
from clockgate_trainer.errors import ConfigError, ExitCode, TrainerError, UsageError
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.launch_environment import decide
from clockgate_trainer.launch_facts import look
from clockgate_trainer.outcome import clear_outcome, read_outcome, write_outcome
from clockgate_trainer.tell import tell

_PROGRAM = "clockgate-train launch"
# What a run of ours cannot be: the program is fixed.
_REFUSED = ("-m", "--module", "--no-python", "--no_python", "--run-path", "--run_path")
_HANDED_AS_THEY_ARE = (signal.SIGUSR1, signal.SIGUSR2)
# How long the launcher waits for the run folder at the end: rank 0 of another node may still be writing in it.
_FOLDER_PATIENCE_S = 5.0
_FOLDER_LOOK_S = 0.1


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
        tell(f"{_PROGRAM}: {error}")
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
        is_ours = folder is not None and _forget_outcome(folder)
    except TrainerError as error:
        tell(f"{_PROGRAM}: {error}")
        return error.exit_code
    with tempfile.TemporaryDirectory(prefix="clockgate-launch-") as scratch, _SignalHandover() as handover:
        args.log_dir = args.log_dir or scratch
        ending = _run_with_restarts(args, handover, folder)
        standing = newest_checkpoint(folder) if folder is not None and folder.is_dir() else None
        ending = with_checkpoint(ending, standing)
        if ending.code != ExitCode.DONE:
            tell(f"{_PROGRAM}: exit {ending.code}: {ending.reason}")
        # A folder that another run had at the start, and that our ranks were refused, is that run's to tell about.
        if folder is not None and folder.is_dir() and (is_ours or ending.code != ExitCode.CONFIG):
            _complete_outcome(folder, ending, standing)
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
    _set_environment(args, nodes=max_nodes, ranks_here=ranks_here)
    handed = {number.name for number in (*_HANDED_AS_THEY_ARE, *STOPPING)}
    left = [name for name in args.signals_to_handle.split(",") if name.strip() not in handed]
    # On these torchrun ends the ranks itself, within 30 s and without a save.
    args.signals_to_handle = ",".join(left) or "SIGQUIT"
    return args


def _set_environment(args: argparse.Namespace, *, nodes: int, ranks_here: int) -> None:
    """Give the ranks what follows from this node's facts, and say so."""
    meeting = args.rdzv_endpoint or args.master_addr
    host = meeting.rpartition(":")[0] if meeting.count(":") == 1 else meeting
    facts = look(
        ranks_here=ranks_here,
        nodes=nodes,
        endpoint_host=host.strip("[]"),
        cuda=torch.cuda.is_available(),
        environment=os.environ,
    )
    decided = decide(facts)
    for setting in decided.settings:
        os.environ[setting.name] = setting.value
    if decided.settings:
        tell(f"{_PROGRAM}: set for the ranks: {'; '.join(map(str, decided.settings))}")
    for warning in decided.warnings:
        tell(f"{_PROGRAM}: warning: {warning}")


def _run_with_restarts(args: argparse.Namespace, handover: "_SignalHandover", folder: Path | None) -> Ending:
    """Run; again for each of --max_restarts while a rank is lost or fell over. What ended on purpose is not repeated,
    nor what got nowhere twice.

    torchrun's own restart cannot tell a lost rank from a run that the gate stopped.
    """
    left, args.max_restarts = args.max_restarts, 0
    attempt = 0
    try:
        handover.begin()
        while True:
            attempt_args = copy.copy(args)
            if attempt and args.rdzv_id != "none":
                # The meeting of the first attempt is closed for good.
                attempt_args.rdzv_id = f"{args.rdzv_id}-{attempt}"
            ending = _run_once(attempt_args, handover)
            on_purpose = {ExitCode.DONE, *(code for code, _ in TELLING)}
            if ending.code in on_purpose or handover.stop_asked or attempt == left or _gets_nowhere(folder):
                return ending
            attempt += 1
            tell(f"{_PROGRAM}: {ending.reason}; restart {attempt} of {left}")
    except _StoppedEarly:
        return Ending(ExitCode.STOPPED_UNSAVED, "stopped on request before a rank was started", before_start=True)


def _gets_nowhere(folder: Path | None) -> bool:
    attempts = None if folder is None else read_attempts(folder)
    return attempts is not None and not attempts.may_start


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
    ready, so that an early one is not lost and kills nobody. What `early.hold_back` kept counts from `begin`
    on.
    """

    def __init__(self) -> None:
        self.stop_asked = False
        self._interrupts = 0
        self._previous: dict[signal.Signals, object] = {}
        self._done = threading.Event()
        # Somebody has to take the signals that the main thread blocks; Python then runs their handlers in the main one.
        self._taker = threading.Thread(target=self._take, name="clockgate-signals", daemon=True)

    def __enter__(self) -> "_SignalHandover":
        for number in (*_HANDED_AS_THEY_ARE, *STOPPING):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a job in the background
                self._previous[number] = signal.signal(number, self._on_signal)
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDED_AS_THEY_ARE)
        self._taker.start()
        return self

    def begin(self) -> None:
        """Take the signals that were held back. Raises _StoppedEarly when one of them asks to stop."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)

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
        if sent in STOPPING:
            self.stop_asked = True
            self._interrupts += sent is signal.SIGINT
            if not ranks:
                raise _StoppedEarly
            sent = signal.SIGKILL if self._interrupts > 1 else signal.SIGTERM
        told = "ended without a save" if sent is signal.SIGKILL else f"handed {sent.name}"
        tell(f"{_PROGRAM}: {signal.Signals(number).name}: {len(ranks)} ranks {told}")
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


def newest_checkpoint(folder: Path) -> Standing | None:
    """The checkpoint of the highest step in a run folder whose manifest can be read; its files are not looked at."""
    named = ((step_in_name(path), path) for path in HOST.list_folders(folder))
    for step, path in sorted(((step, path) for step, path in named if step is not None), reverse=True):
        manifest = read_manifest(path, HOST)
        if isinstance(manifest, Manifest) and manifest.step == step:
            return Standing(step, str(path))
    return None


def _forget_outcome(folder: Path) -> bool:
    """Remove the outcome of an earlier run; False when the folder is another run's, or of this run on another node.

    Under the folder's lock: an outcome that another run is writing is not ours to remove. Raises ConfigError.
    """
    if not folder.is_dir():
        return True
    try:
        with claimed(folder):
            clear_outcome(folder)
    except ConfigError:
        return False  # rank 0 will say so, unless it has the folder itself
    except OSError as error:
        raise ConfigError(f"the outcome of an earlier run in {folder} cannot be removed: {error}") from error
    return True


def _complete_outcome(folder: Path, ending: Ending, standing: Standing | None) -> None:
    """Put what only the launcher knows into outcome.json, once no rank has the folder any more."""
    until = time.monotonic() + _FOLDER_PATIENCE_S
    while True:
        try:
            with claimed(folder):
                _write_completed(folder, ending, standing)
            return
        except ConfigError as error:
            if time.monotonic() > until:
                tell(f"{_PROGRAM}: outcome.json is left as it is: {error}")
                return
        time.sleep(_FOLDER_LOOK_S)


def _write_completed(folder: Path, ending: Ending, standing: Standing | None) -> None:
    try:
        found = read_outcome(folder)
    except ValueError as error:
        tell(f"{_PROGRAM}: {error}")
        found = None
    outcome = complete(found, ending, standing)
    if outcome == found:
        return
    try:
        write_outcome(folder, outcome)
    except OSError as error:
        tell(f"{_PROGRAM}: outcome.json could not be written in {folder}: {error}")


def _help() -> str:
    parser = torchrun.get_args_parser()
    usage = f"usage: {_PROGRAM} [torchrun arguments] [--] [flags of clockgate-train]"
    return f"{usage}\n\n{__doc__}\ntorchrun arguments:\n{parser.format_help()}"
