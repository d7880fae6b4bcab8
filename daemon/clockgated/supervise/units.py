"""Programs as units of systemd: they outlive clockgated, and restarting clockgated does not touch them.

The units themselves are installed; what they run is written here, as drop-ins below /run/systemd/system. A drop-in is
at the same time the record that the unit is ours. The truth about a run is in its environment: the digest of the spec
that it was started with. systemd restarts what ends, we count and slow it down: a crash loop gets the longest delay
(the exponential delays of systemd itself came with release 254, after the oldest that we support).
"""

import logging
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from clockgated import host
from clockgated.durable import replace_file
from clockgated.supervise.base import ChildSpec, ChildStatus
from clockgated.supervise.journal import JournalFollower
from clockgated.supervise.marks import StartMarks
from clockgated.supervise.policy import ExitHistory, RestartPolicy, after_exit, is_crash_loop, next_start_ns
from clockgated.supervise.process import ProcessIdentity, environment_of, identity_of, is_alive
from clockgated.supervise.unit_text import (
    SHOWN_PROPERTIES,
    SPEC_VARIABLE,
    UnitState,
    drop_in,
    parse_header,
    parse_show,
    restarts_since,
)
from clockgated.units import NS_PER_S

_log = logging.getLogger(__name__)
_DROP_IN = "10-clockgate.conf"
_TIMEOUT_S = 5.0
_STOP_GRACE_S = 5
# A systemctl costs some 10 ms of CPU. While every unit's process is seen to live in /proc, it is only run so often.
_LOOK_EVERY_NS = 30 * NS_PER_S
# How long systemd gets to act on a queued job before the same job is asked for again.
_JOB_PATIENCE_NS = 10 * NS_PER_S


@dataclass
class _Slot:
    """Everything about one unit: what it should run (None: nothing), what systemd says, and how it fared."""

    name: str
    unit: str
    target: ChildSpec | None = None
    may_step: bool = True
    grace_ns: int = _STOP_GRACE_S * NS_PER_S
    state: UnitState | None = None
    identity: ProcessIdentity | None = None
    history: ExitHistory = field(default_factory=ExitHistory)
    last_exit: str | None = None
    next_start_mono_ns: int | None = None
    asked_mono_ns: int | None = None
    killed_because: str | None = None


class UnitsBackend:
    """A `Backend` whose programs are units of systemd.

    Their output goes to the journal by itself; with a `follower` its lines also come back to this process.
    `systemctl` and `folder` are replaced in tests.
    """

    def __init__(
        self,
        policy: RestartPolicy,
        marks: StartMarks,
        systemctl: Sequence[str] = ("systemctl",),
        folder: Path = Path("/run/systemd/system"),
        follower: JournalFollower | None = None,
    ) -> None:
        self._policy = policy
        self._marks = marks
        self._systemctl = tuple(systemctl)
        self._folder = folder
        self._follower = follower
        self._created_mono_ns = self._now_mono_ns = host.mono_ns()
        self._next_look_mono_ns = 0
        self._slots = {name: _Slot(name, unit) for name, unit in self._ours_on_disk()}

    def start(self, spec: ChildSpec, *, may_step: bool) -> None:
        """See `Backend.start`. Raises ValueError for a spec without a unit."""
        if spec.unit is None:
            raise ValueError(f"child {spec.name}: no unit; wanted the name of the systemd unit that stands for it")
        slot = self._slots.setdefault(spec.name, _Slot(spec.name, spec.unit))
        if slot.target is None or slot.target.digest != spec.digest:
            # Another program or configuration: the failures of the old one say nothing about it.
            slot.history = ExitHistory(exits=slot.history.exits)
            slot.next_start_mono_ns = slot.asked_mono_ns = None
            self._next_look_mono_ns = 0
        if slot.may_step != may_step:
            # systemd restarts on its own, so the command that it would use must be right before that.
            self._next_look_mono_ns = 0
        slot.target, slot.may_step = spec, may_step

    def stop(self, name: str, grace_ns: int) -> None:
        """See `Backend.stop`."""
        slot = self._slots.get(name)
        if slot is not None:
            if slot.target is not None:
                slot.asked_mono_ns = None
            slot.target, slot.grace_ns = None, grace_ns

    def restart(self, name: str, why: str) -> None:
        """See `Backend.restart`. The unit's own Restart= brings it back."""
        slot = self._slots.get(name)
        if slot is not None:
            slot.killed_because = why
            self._command(slot, "kill", "--signal=SIGKILL", slot.unit)

    def names(self) -> tuple[str, ...]:
        """See `Backend.names`."""
        return tuple(self._slots)

    def status(self, name: str) -> ChildStatus:
        """See `Backend.status`. Exits before this process of clockgated are not counted."""
        slot = self._slots.get(name)
        if slot is None:
            return ChildStatus(name)
        since_ns = self._since_ns(slot)
        return ChildStatus(
            name=name,
            pid=slot.identity.pid if slot.identity else None,
            start_time_ticks=slot.identity.start_ticks if slot.identity else None,
            running=slot.identity is not None,
            exits=slot.history.exits,
            crash_loop=is_crash_loop(self._policy, slot.history, since_ns, self._now_mono_ns),
            last_exit=slot.last_exit,
            since_mono_ns=since_ns,
            adopted=since_ns is not None and since_ns < self._created_mono_ns,
            next_start_mono_ns=slot.next_start_mono_ns if slot.identity is None else None,
        )

    def poll(self, now_mono_ns: int) -> None:
        """See `Backend.poll`. Blocks for as long as systemctl does, at most a few seconds."""
        self._now_mono_ns = now_mono_ns
        if self._follower is not None:
            self._follower.poll({slot.unit: slot.name for slot in self._slots.values()}, now_mono_ns)
        if not self._slots or not self._is_look_due():
            return
        self._next_look_mono_ns = now_mono_ns + _LOOK_EVERY_NS
        states = self._show()
        if states is None:
            return
        for slot in list(self._slots.values()):
            self._note(slot, states.get(slot.unit, UnitState(slot.unit)))
            if slot.target is None:
                self._leave(slot)
            else:
                self._pursue(slot, slot.target)

    def close(self) -> None:
        """See `Backend.close`: units go on without us; only the follower of their output ends."""
        if self._follower is not None:
            self._follower.close()

    def _ours_on_disk(self) -> list[tuple[str, str]]:
        found = []
        for path in sorted(self._folder.glob(f"*.service.d/{_DROP_IN}")):
            header = parse_header(_read(path) or "")
            if header is not None:
                found.append((header[0], path.parent.name.removesuffix(".d")))
        return found

    def _is_look_due(self) -> bool:
        return self._now_mono_ns >= self._next_look_mono_ns or any(
            slot.target is None or slot.identity is None or not is_alive(slot.identity) for slot in self._slots.values()
        )

    def _since_ns(self, slot: _Slot) -> int | None:
        return slot.state.started_mono_ns if slot.state is not None and slot.identity is not None else None

    def _note(self, slot: _Slot, state: UnitState) -> None:
        """Take over what systemd says, and count what ended since it was last asked."""
        before, since_ns = slot.state, self._since_ns(slot) or self._now_mono_ns
        ends = restarts_since(before.restarts if before else None, state.restarts)
        if before is not None and before.active_state != "failed" and state.active_state == "failed":
            ends += 1
        for _ in range(min(ends, self._policy.loop_exits)):
            self._failed(slot, since_ns, slot.killed_because or _how_it_ended(state))
            slot.killed_because = None
            since_ns = self._now_mono_ns
        slot.state = state
        slot.identity = identity_of(state.main_pid) if state.is_up and state.main_pid else None
        self._mark(slot)

    def _mark(self, slot: _Slot) -> None:
        since_ns = self._since_ns(slot)
        has_lasted = since_ns is not None and self._now_mono_ns - since_ns >= self._policy.healthy_after_ns
        if has_lasted and not self._marks.has(slot.name):
            self._marks.put(slot.name)

    def _failed(self, slot: _Slot, since_mono_ns: int, why: str) -> None:
        slot.history = after_exit(self._policy, slot.history, since_mono_ns, self._now_mono_ns)
        slot.next_start_mono_ns = next_start_ns(self._policy, slot.history)
        slot.last_exit = why
        _log.warning("%s: %s: %s (exit %d)", slot.name, slot.unit, why, slot.history.exits)

    def _leave(self, slot: _Slot) -> None:
        """Bring a unit that is not wanted to rest, then forget it."""
        state = slot.state
        if state is None or state.is_down or state.load_state == "not-found":
            if self._remove_drop_in(slot):
                del self._slots[slot.name]
        elif slot.asked_mono_ns is None:
            slot.asked_mono_ns = self._now_mono_ns
            self._command(slot, "stop", "--no-block", slot.unit)
        elif self._now_mono_ns - slot.asked_mono_ns >= slot.grace_ns:
            self._command(slot, "kill", "--signal=SIGKILL", slot.unit)

    def _pursue(self, slot: _Slot, spec: ChildSpec) -> None:
        """Bring a wanted unit to run its spec."""
        state, running = slot.state, self._running_digest(slot)
        text, old_text = self._drop_in_text(slot, spec), _read(self._drop_in_path(slot))
        is_new = old_text != text
        if state is None or (is_new and not self._write_drop_in(slot, text)):
            return
        # Also when an earlier clockgated was killed before it could ask for the reload, or was refused.
        if (is_new or state.needs_reload) and not self._command(slot, "daemon-reload"):
            return
        if state.load_state == "not-found":
            # A unit may have been installed since systemd last read its folders: judged after a reload only.
            if not is_new and self._is_start_due(slot):
                self._failed(slot, self._now_mono_ns, f"unit {slot.unit} is not installed; install clockgate's units")
        elif slot.identity is not None:
            if running == spec.digest:
                slot.asked_mono_ns = None
            elif self._may_ask(slot):
                self._command(slot, "restart", "--no-block", slot.unit)
        elif state.sub_state == "auto-restart" and parse_header(old_text or "") != parse_header(text):
            # It waits for its next attempt, perhaps for the delay of a crash loop, which a new spec need not wait out.
            self._command(slot, "restart", "--no-block", slot.unit)
        elif state.is_down and self._is_start_due(slot) and self._may_ask(slot):
            self._command(slot, "start", "--no-block", slot.unit)

    def _running_digest(self, slot: _Slot) -> str | None:
        """Digest of the spec that the unit's process was started with; None when it runs something else, or nothing."""
        if slot.identity is None:
            return None
        environment = environment_of(slot.identity.pid)
        if environment is not None:
            return environment.get(SPEC_VARIABLE)
        # Without CAP_SYS_PTRACE another user's environment is hidden; what the drop-in says is then the best guess.
        header = parse_header(_read(self._drop_in_path(slot)) or "")
        return header[1] if header else None

    def _is_start_due(self, slot: _Slot) -> bool:
        return slot.next_start_mono_ns is None or self._now_mono_ns >= slot.next_start_mono_ns

    def _may_ask(self, slot: _Slot) -> bool:
        asked_ns = slot.asked_mono_ns
        if asked_ns is not None and self._now_mono_ns - asked_ns < _JOB_PATIENCE_NS:
            return False
        slot.asked_mono_ns = self._now_mono_ns
        return True

    def _drop_in_text(self, slot: _Slot, spec: ChildSpec) -> str:
        is_loop = is_crash_loop(self._policy, slot.history, self._since_ns(slot), self._now_mono_ns)
        delay_ns = self._policy.max_delay_ns if is_loop else self._policy.first_delay_ns
        argv = spec.argv if slot.may_step and not self._marks.has(slot.name) else spec.later_argv
        return drop_in(spec, argv, max(1, delay_ns // NS_PER_S), _STOP_GRACE_S)

    def _write_drop_in(self, slot: _Slot, text: str) -> bool:
        path = self._drop_in_path(slot)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Not synced: a reboot empties /run, and systemd reads it through the page cache like we do.
            replace_file(path, text.encode(), mode=0o644, sync=False)
        except OSError as error:
            slot.last_exit = f"its drop-in {path} cannot be written: {error.strerror}"
            _log.warning("%s: %s", slot.name, slot.last_exit)
            return False
        return True

    def _remove_drop_in(self, slot: _Slot) -> bool:
        path = self._drop_in_path(slot)
        try:
            path.unlink(missing_ok=True)
            if path.parent.is_dir() and not any(path.parent.iterdir()):
                path.parent.rmdir()
        except OSError as error:
            slot.last_exit = f"its drop-in {path} cannot be removed: {error.strerror}"
            return False
        return self._command(slot, "daemon-reload")

    def _drop_in_path(self, slot: _Slot) -> Path:
        return self._folder / f"{slot.unit}.d" / _DROP_IN

    def _show(self) -> dict[str, UnitState] | None:
        units = [slot.unit for slot in self._slots.values()]
        outcome = self._run("show", f"--property={','.join(SHOWN_PROPERTIES)}", "--", *units)
        if not isinstance(outcome, str) and outcome.returncode == 0:
            return parse_show(outcome.stdout)
        complaint = outcome if isinstance(outcome, str) else f"systemctl show: {outcome.stderr.strip()[-300:]}"
        for slot in self._slots.values():
            slot.last_exit = complaint
        return None

    def _command(self, slot: _Slot, *words: str) -> bool:
        outcome = self._run(*words)
        complaint = outcome if isinstance(outcome, str) else outcome.stderr.strip()
        if isinstance(outcome, str) or outcome.returncode != 0:
            slot.last_exit = f"systemctl {' '.join(words)}: {complaint[-300:] or 'failed without a word'}"
            _log.warning("%s: %s", slot.name, slot.last_exit)
            return False
        return True

    def _run(self, *words: str) -> "subprocess.CompletedProcess[str] | str":
        argv = (*self._systemctl, "--no-ask-password", "--no-pager", *words)
        try:
            return subprocess.run(
                argv,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return f"systemctl {words[0]} gave no answer within {_TIMEOUT_S:g} s"
        except OSError as error:
            return f"systemctl cannot be run: {error.strerror}"


def _how_it_ended(state: UnitState) -> str:
    if state.is_up or state.result in ("", "success"):
        # systemd has begun the next run, and what it shows is about that one.
        return f"ended; see journalctl -u {state.unit}"
    return f"ended: {state.result}, exit status {state.exit_status}"


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
