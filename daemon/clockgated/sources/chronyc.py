"""chronyd, asked through one chronyc per reading."""

import logging
from collections.abc import Callable
from pathlib import Path

from clockgated import host
from clockgated.clock.bound import BoundPolicy, chrony_evidence
from clockgated.clock.model import Evidence, Reason, ReasonCode, Silence, SourceKind
from clockgated.clock.report import ChronyReport
from clockgated.sources.chrony_csv import parse
from clockgated.sources.command import Ending, Outcome, run_bounded

_log = logging.getLogger(__name__)
_LIMIT_BYTES = 1 << 20
# Known since chrony 4.0. The burst asks each server up to 16 times for 8 good answers, 2 s apart: of 4, chronyd would
# estimate the frequency too badly to be believed.
_FORGET = ("reset sources", "burst 8/16")
_REPORTS = ("tracking", "sources", "sourcestats", "ntpdata")


class ChronycSource:
    """Asks the chronyd behind `socket`. A read blocks for at most `timeout_s` plus the time to kill a hung chronyc.

    `node_id` is the boot id: it keeps apart what has the same address on every node. `program` and the clock reader
    `stamp` are replaced in tests.
    """

    kind = SourceKind.CHRONY

    def __init__(
        self,
        socket: Path,
        policy: BoundPolicy,
        node_id: str,
        *,
        timeout_s: float = 0.8,
        program: str = "chronyc",
        stamp: Callable[[], host.Stamp] = host.stamp,
    ) -> None:
        self._socket = socket
        self._policy = policy
        self._node_id = node_id
        self._timeout_s = timeout_s
        # -m: several reports in one call; -n: addresses, since two servers may share one name.
        self._argv = (program, "-h", str(socket), "-c", "-n", "-m", *_REPORTS)
        self._forget_argv = (program, "-h", str(socket), "-m", *_FORGET)
        self._stamp = stamp

    def read(self) -> Evidence | Silence:
        """Ask once. The reading is dated before the question, the reference time is aged after the answer."""
        as_of_boot_ns = self._stamp().boot_ns
        steering_id = self._steering_id()
        report = self._ask()
        if isinstance(report, Reason):
            return Silence(self.kind, as_of_boot_ns, report)
        return chrony_evidence(
            report,
            as_of_boot_ns=as_of_boot_ns,
            wall_ns=self._stamp().wall_ns,
            policy=self._policy,
            node_id=self._node_id,
            steering_id=steering_id,
        )

    def forget(self) -> bool:
        """Have chronyd drop all its samples and measure anew at once; only for a chronyd of ours.

        Blocks as `read` does. False when chronyd did not say that it did, which is told in the log.
        """
        try:
            outcome = run_bounded(self._forget_argv, self._timeout_s, _LIMIT_BYTES)
        except OSError as error:
            _log.warning("chronyd keeps its samples from before the break: %s cannot be run: %s", self._argv[0], error)
            return False
        if outcome.exit_code == 0:
            _log.info("chronyd was told to drop its samples from before the break and to measure anew")
            return True
        said = (outcome.stdout + outcome.stderr).decode("utf-8", "replace").strip()[:200]
        _log.warning("chronyd keeps its samples from before the break: chronyc said %r", said)
        return False

    def _ask(self) -> ChronyReport | Reason:
        try:
            outcome = run_bounded(self._argv, self._timeout_s, _LIMIT_BYTES)
        except FileNotFoundError:
            detail = f"there is no program {self._argv[0]}; install chrony, or set its path in [chrony] chronyc"
            return Reason(ReasonCode.SOURCE_UNREACHABLE, detail)
        except OSError as error:
            return Reason(ReasonCode.SOURCE_UNREACHABLE, f"{self._argv[0]} cannot be run: {error}")
        return self._judged(outcome)

    def _judged(self, outcome: Outcome) -> ChronyReport | Reason:
        if outcome.ending is Ending.TIMED_OUT:
            detail = f"chronyc gave no answer within {self._timeout_s:g} s; is chronyd at {self._socket} alive?"
            return Reason(ReasonCode.SOURCE_UNREACHABLE, detail)
        if outcome.ending is Ending.FLOODED:
            detail = f"chronyc printed more than {_LIMIT_BYTES} bytes; wanted one report of a few lines"
            return Reason(ReasonCode.SOURCE_GARBLED, detail)
        said = outcome.stderr.decode("utf-8", "replace").strip()[:200]
        if outcome.exit_code != 0 and not outcome.stdout:
            detail = f"chronyc -h {self._socket} ended with {outcome.exit_code} and said {said!r}; is chronyd running?"
            return Reason(ReasonCode.SOURCE_UNREACHABLE, detail)
        report = parse(outcome.stdout)
        # chronyc exits with 1 when any report was refused; a refused ntpdata alone leaves a usable report.
        if outcome.exit_code != 0 and isinstance(report, ChronyReport) and report.upstreams is not None:
            detail = f"chronyc ended with {outcome.exit_code} after part of its report and said {said!r}"
            return Reason(ReasonCode.SOURCE_GARBLED, detail)
        return report

    def _steering_id(self) -> str | None:
        """Identity of this chronyd: it makes its socket anew at every start. None while there is no socket."""
        try:
            status = self._socket.stat()
        except OSError:
            return None
        return f"chronyd@{self._socket}#{status.st_dev}.{status.st_ino}.{status.st_mtime_ns}"
