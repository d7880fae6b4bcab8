"""Programs as children of this process: for containers, network namespaces and tests, where no systemd runs.

A child is meant to outlive a kill -9 of this process, so that the clock goes on being steered, and to be adopted by
the next one. A parent-death signal would do the opposite, and would do it unreliably: the kernel forgets it when a
program changes its user, as chronyd does, and it fires when the thread that forked ends. What makes a second chronyd
impossible is the lock of `ledger`.

No code of ours runs between fork and exec: with gRPC's threads in the process that could dead-lock. `setpriv` drops the
right to set the clock in the child's stead; a child that cannot be kept from the clock is not started.
"""

import logging
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from clockgated import host
from clockgated.supervise.base import ChildSpec, ChildStatus
from clockgated.supervise.ledger import Ledger, Record
from clockgated.supervise.marks import StartMarks
from clockgated.supervise.output import LineCallback, OutputReader
from clockgated.supervise.policy import ExitHistory, RestartPolicy, after_exit, is_crash_loop, next_start_ns
from clockgated.supervise.process import ProcessIdentity, holders, identity_of, is_alive, own_capabilities, send
from clockgated.units import NS_PER_MS, NS_PER_S

_log = logging.getLogger(__name__)
_DEFAULT_GRACE_NS = 5 * NS_PER_S
_CLOSE_STEP_S = 0.02
_EVICT_RETRY_NS = 200 * NS_PER_MS
_WITHOUT_CLOCK_RIGHT = ("setpriv", "--bounding-set=-sys_time", "--inh-caps=-sys_time", "--")
# Who has neither the right nor the power to narrow the bounding set can only gain it from a file: forbidden by this.
_GAINING_NO_RIGHT = ("setpriv", "--no-new-privs", "--")
_CAP_SETPCAP = 1 << 8
_CAP_SYS_TIME = 1 << 25


@dataclass
class _Run:
    """One living process. `process` is None for an adopted one, which is not ours to wait for."""

    identity: ProcessIdentity
    digest: str
    since_mono_ns: int
    process: subprocess.Popen[bytes] | None
    kill_at_mono_ns: int | None = None


@dataclass
class _Slot:
    """Everything about one name: what should run (None: nothing), what does, and how it fared."""

    name: str
    target: ChildSpec | None = None
    may_step: bool = True
    grace_ns: int = _DEFAULT_GRACE_NS
    run: _Run | None = None
    history: ExitHistory = field(default_factory=ExitHistory)
    last_exit: str | None = None
    next_start_mono_ns: int | None = None
    evict_at_mono_ns: int | None = None
    killed_because: str | None = None


class ChildrenBackend:
    """A `Backend` whose programs are children.

    Raises OSError when `folder`, its private place on disk, cannot be had. With `logs_lines` False the output does not
    go to the log.
    """

    def __init__(
        self, folder: Path, boot_id: str, policy: RestartPolicy, on_line: LineCallback, *, logs_lines: bool = True
    ) -> None:
        self._policy = policy
        self._boot_id = boot_id
        self._ledger = Ledger(folder)
        self._marks = StartMarks(folder, boot_id)
        self._slots: dict[str, _Slot] = {}
        self._now_mono_ns = host.mono_ns()
        self._reader = OutputReader(on_line, logs_lines=logs_lines)
        for record in self._ledger.load():
            self._take_up(record)

    def start(self, spec: ChildSpec, *, may_step: bool) -> None:
        """See `Backend.start`. A leftover of an earlier process with the same digest is adopted."""
        slot = self._slots.setdefault(spec.name, _Slot(spec.name))
        if slot.target is None or slot.target.digest != spec.digest:
            # Another program or configuration: the failures of the old one say nothing about it.
            slot.history, slot.next_start_mono_ns = ExitHistory(exits=slot.history.exits), None
        slot.target, slot.may_step = spec, may_step

    def stop(self, name: str, grace_ns: int) -> None:
        """See `Backend.stop`."""
        slot = self._slots.get(name)
        if slot is not None:
            slot.target, slot.grace_ns = None, grace_ns

    def restart(self, name: str, why: str) -> None:
        """See `Backend.restart`. SIGKILL, since a stopped process takes no other signal."""
        slot = self._slots.get(name)
        if slot is not None and slot.run is not None:
            slot.killed_because = why
            self._signal(slot, slot.run.identity, signal.SIGKILL)

    def names(self) -> tuple[str, ...]:
        """See `Backend.names`."""
        return tuple(self._slots)

    def status(self, name: str) -> ChildStatus:
        """See `Backend.status`."""
        slot = self._slots.get(name)
        if slot is None:
            return ChildStatus(name)
        run = slot.run
        since_ns = None if run is None else run.since_mono_ns
        return ChildStatus(
            name=name,
            pid=None if run is None else run.identity.pid,
            start_time_ticks=None if run is None else run.identity.start_ticks,
            running=run is not None,
            exits=slot.history.exits,
            crash_loop=is_crash_loop(self._policy, slot.history, since_ns, self._now_mono_ns),
            last_exit=slot.last_exit,
            since_mono_ns=since_ns,
            adopted=run is not None and run.process is None,
            next_start_mono_ns=slot.next_start_mono_ns if run is None else None,
            dropped_lines=self._reader.dropped_lines(name),
        )

    def poll(self, now_mono_ns: int) -> None:
        """See `Backend.poll`."""
        self._now_mono_ns = now_mono_ns
        for slot in list(self._slots.values()):
            self._reap(slot)
            if slot.run is not None:
                self._mark(slot, slot.run)
                if slot.target is None or slot.target.digest != slot.run.digest:
                    self._end(slot, slot.run)
            elif slot.target is None:
                self._forget(slot)
            elif slot.next_start_mono_ns is None or now_mono_ns >= slot.next_start_mono_ns:
                self._start(slot, slot.target)

    def close(self) -> None:
        """End every child, each within the grace last asked for it, and the output thread."""
        for slot in self._slots.values():
            slot.target = None
        longest_ns = max((slot.grace_ns for slot in self._slots.values()), default=0)
        deadline_ns = host.mono_ns() + longest_ns + 2 * NS_PER_S
        while self._slots and host.mono_ns() < deadline_ns:
            self.poll(host.mono_ns())
            time.sleep(_CLOSE_STEP_S)
        if self._slots:
            _log.error("still running after SIGKILL: %s; the next start will end them", ", ".join(self._slots))
        self._reader.close()

    def _take_up(self, record: Record) -> None:
        if record.boot_id != self._boot_id or not is_alive(record.identity):
            self._ledger.forget(record.name)
            return
        slot = _Slot(record.name, run=_Run(record.identity, record.spec_digest, self._now_mono_ns, None))
        self._slots[record.name] = slot
        _log.info("%s: process %d of an earlier clockgated is still there", record.name, record.pid)
        try:
            self._reader.follow(record.name, self._ledger.pipe_path(record.name))
        except OSError as error:
            _log.warning("%s: its output cannot be followed: %s", record.name, error)

    def _reap(self, slot: _Slot) -> None:
        run = slot.run
        how = None if run is None else _how_it_ended(run)
        if run is None or how is None:
            return
        slot.run = None
        self._reader.end_line(slot.name)
        self._ledger.forget(slot.name)
        if slot.killed_because is None and run.kill_at_mono_ns is not None:
            slot.last_exit = f"ended as asked: {how}"
            _log.info("%s: %s", slot.name, slot.last_exit)
        else:
            self._failed(slot, run.since_mono_ns, slot.killed_because or how)
        slot.killed_because = None

    def _failed(self, slot: _Slot, since_mono_ns: int, why: str) -> None:
        slot.history = after_exit(self._policy, slot.history, since_mono_ns, self._now_mono_ns)
        slot.next_start_mono_ns = next_start_ns(self._policy, slot.history)
        slot.last_exit = why
        wait_s = ((slot.next_start_mono_ns or self._now_mono_ns) - self._now_mono_ns) / NS_PER_S
        loop = ", a crash loop" if is_crash_loop(self._policy, slot.history, None, self._now_mono_ns) else ""
        _log.warning("%s: %s (exit %d%s); next start in %.1f s", slot.name, why, slot.history.exits, loop, wait_s)

    def _end(self, slot: _Slot, run: _Run) -> None:
        if run.kill_at_mono_ns is None:
            run.kill_at_mono_ns = self._now_mono_ns + slot.grace_ns
            self._signal(slot, run.identity, signal.SIGTERM)
            # A stopped process would keep the SIGTERM pending for ever.
            self._signal(slot, run.identity, signal.SIGCONT)
        elif self._now_mono_ns >= run.kill_at_mono_ns:
            self._signal(slot, run.identity, signal.SIGKILL)

    def _mark(self, slot: _Slot, run: _Run) -> None:
        has_lasted = self._now_mono_ns - run.since_mono_ns >= self._policy.healthy_after_ns
        if has_lasted and not self._marks.has(slot.name):
            self._marks.put(slot.name)

    def _start(self, slot: _Slot, spec: ChildSpec) -> None:
        argv = spec.argv if slot.may_step and not self._marks.has(slot.name) else spec.later_argv
        try:
            lock = self._ledger.take_lock(slot.name)
            if lock is None:
                self._evict(slot)
                return
            try:
                slot.run = self._spawn(spec, argv, lock)
            finally:
                os.close(lock)
        except OSError as error:
            self._failed(slot, self._now_mono_ns, f"cannot be started: {error}")
            return
        slot.evict_at_mono_ns = slot.next_start_mono_ns = None
        identity = slot.run.identity
        _log.info("%s: process %d: %s", slot.name, identity.pid, " ".join(argv))
        try:
            self._ledger.record(Record(slot.name, self._boot_id, identity.pid, identity.start_ticks, slot.run.digest))
        except OSError as error:
            _log.warning("%s: no record of it can be kept (%s); the next clockgated will restart it", slot.name, error)

    def _spawn(self, spec: ChildSpec, argv: tuple[str, ...], lock: int) -> _Run:
        pipe = self._ledger.pipe_path(spec.name)
        self._reader.follow(spec.name, pipe)
        output = os.open(pipe, os.O_WRONLY | os.O_CLOEXEC)
        try:
            process = subprocess.Popen(
                command_line(argv, drop_clock_right=spec.drop_clock_right),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Nothing inherited: NOTIFY_SOCKET in a child would speak to systemd in our name.
                env={"PATH": "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", **dict(spec.environment)},
                cwd="/",
                start_new_session=True,
                pass_fds=(lock,),
                # Python ignores SIGPIPE and this hands that on: a child must survive the end of its output's reader.
                restore_signals=False,
            )
        finally:
            os.close(output)
        identity = identity_of(process.pid)
        if identity is None:
            process.kill()
            process.wait()
            raise OSError(f"/proc/{process.pid}/stat cannot be read; mount /proc")
        return _Run(identity, spec.digest, self._now_mono_ns, process)

    def _forget(self, slot: _Slot) -> None:
        try:
            lock = self._ledger.take_lock(slot.name)
        except OSError as error:
            slot.last_exit = f"cannot be seen to be gone: {error}"
            return
        if lock is None:
            self._evict(slot)
            return
        os.close(lock)
        self._reader.unfollow(slot.name)
        del self._slots[slot.name]

    def _evict(self, slot: _Slot) -> None:
        """End whatever still holds the lock: descendants, or a child of which no record was written in time."""
        path = self._ledger.lock_path(slot.name)
        slot.next_start_mono_ns = self._now_mono_ns + _EVICT_RETRY_NS
        if slot.evict_at_mono_ns is None:
            slot.evict_at_mono_ns = self._now_mono_ns + slot.grace_ns
        leftovers = holders(path)
        if not leftovers:
            slot.last_exit = (
                f"an earlier process of it holds {path} and cannot be identified; "
                f"end it by hand (fuser -k {path}) or give clockgated CAP_SYS_PTRACE"
            )
            _log.warning("%s: not started: %s", slot.name, slot.last_exit)
        for identity in leftovers:
            if self._now_mono_ns >= slot.evict_at_mono_ns:
                self._signal(slot, identity, signal.SIGKILL)
            else:
                _log.warning("%s: ending process %d, left behind by an earlier run", slot.name, identity.pid)
                self._signal(slot, identity, signal.SIGTERM)
                self._signal(slot, identity, signal.SIGCONT)

    def _signal(self, slot: _Slot, identity: ProcessIdentity, number: signal.Signals) -> None:
        complaint = send(identity, number)
        if complaint is not None:
            slot.last_exit = complaint
            _log.warning("%s: %s", slot.name, complaint)


def command_line(argv: tuple[str, ...], *, drop_clock_right: bool) -> tuple[str, ...]:
    """What is executed for `argv`. `setpriv` replaces itself, so the child's pid is the program's."""
    if not drop_clock_right:
        return argv
    can_narrow = own_capabilities("CapEff") & _CAP_SETPCAP or own_capabilities("CapPrm") & _CAP_SYS_TIME
    return (*(_WITHOUT_CLOCK_RIGHT if can_narrow else _GAINING_NO_RIGHT), *argv)


def _how_it_ended(run: _Run) -> str | None:
    if run.process is None:
        return None if is_alive(run.identity) else "ended; its exit status went to the process that reaped it"
    code = run.process.poll()
    if code is None:
        return None
    return f"exit status {code}" if code >= 0 else f"killed by {_signal_name(-code)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # real-time signals have no name of their own
