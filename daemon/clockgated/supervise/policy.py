"""When a program that ended may start again, when it is called a crash loop, and when silence means that it hangs.

Pure: CLOCK_MONOTONIC arrives as an argument.
"""

from dataclasses import dataclass, replace

from clockgated.units import NS_PER_S


@dataclass(frozen=True)
class RestartPolicy:
    """Delay `first_delay_ns`, doubled at each failure in a row up to `max_delay_ns`.

    A run of `healthy_after_ns` forgets the failures before it. `loop_exits` ends within `loop_window_ns` are a crash
    loop; attempts go on at the ceiling, so the window must hold `loop_exits` delays at the ceiling, or a program that
    never comes up would drop out of the loop state between two attempts.
    """

    first_delay_ns: int = 1 * NS_PER_S
    max_delay_ns: int = 60 * NS_PER_S
    healthy_after_ns: int = 120 * NS_PER_S
    loop_exits: int = 5
    loop_window_ns: int = 600 * NS_PER_S

    def __post_init__(self) -> None:
        if not 0 < self.first_delay_ns <= self.max_delay_ns or self.loop_exits < 1 or self.healthy_after_ns <= 0:
            raise ValueError(f"{self}: wanted 0 < first_delay_ns <= max_delay_ns, loop_exits and healthy_after_ns > 0")
        if self.loop_window_ns < self.loop_exits * self.max_delay_ns:
            raise ValueError(f"{self}: loop_window_ns must be at least loop_exits * max_delay_ns")


@dataclass(frozen=True)
class ExitHistory:
    """Ends of one program that nobody asked for. `recent_mono_ns` holds the newest, at most `loop_exits` of them."""

    exits: int = 0
    failures_in_a_row: int = 0
    recent_mono_ns: tuple[int, ...] = ()


def delay_ns(policy: RestartPolicy, failures_in_a_row: int) -> int:
    """Wait before the next attempt, ns; none before the first."""
    if failures_in_a_row <= 0:
        return 0
    # 2**62 first delays are beyond any ceiling; an uncapped exponent would grow into numbers of megabytes.
    return min(policy.max_delay_ns, policy.first_delay_ns << min(failures_in_a_row - 1, 62))


def after_exit(policy: RestartPolicy, history: ExitHistory, since_mono_ns: int, now_mono_ns: int) -> ExitHistory:
    """History after a run that began at `since_mono_ns` ended at `now_mono_ns` (equal: it never came up)."""
    was_healthy = now_mono_ns - since_mono_ns >= policy.healthy_after_ns
    before = ExitHistory(exits=history.exits) if was_healthy else history
    recent = (*before.recent_mono_ns, now_mono_ns)[-policy.loop_exits :]
    return ExitHistory(history.exits + 1, before.failures_in_a_row + 1, recent)


def next_start_ns(policy: RestartPolicy, history: ExitHistory) -> int | None:
    """CLOCK_MONOTONIC, ns, of the next attempt; None when nothing has failed, so at once."""
    if not history.recent_mono_ns:
        return None
    return history.recent_mono_ns[-1] + delay_ns(policy, history.failures_in_a_row)


def is_crash_loop(policy: RestartPolicy, history: ExitHistory, since_mono_ns: int | None, now_mono_ns: int) -> bool:
    """Whether the program keeps ending. `since_mono_ns` is the start of the present run, None when there is none."""
    if since_mono_ns is not None and now_mono_ns - since_mono_ns >= policy.healthy_after_ns:
        return False
    recent = [at for at in history.recent_mono_ns if now_mono_ns - at <= policy.loop_window_ns]
    return len(recent) >= policy.loop_exits


@dataclass(frozen=True)
class Watch:
    """How long one run, named by pid and start time, has given no evidence while we were looking."""

    run: tuple[int, int]
    evidence_mono_ns: int | None
    silent_ns: int
    seen_mono_ns: int


# A pause between two looks counts no longer than this: when this process itself was stopped, or its cycle hung, the
# silence it slept through proves nothing against the program.
_MAX_LOOK_NS = 5 * NS_PER_S


def watched(previous: Watch | None, run: tuple[int, int], evidence_mono_ns: int | None, now_mono_ns: int) -> Watch:
    """The watch after one more look. `evidence_mono_ns` is when the newest evidence arrived; None: never."""
    if previous is None or previous.run != run:
        return Watch(run, evidence_mono_ns, 0, now_mono_ns)
    is_new = evidence_mono_ns is not None and evidence_mono_ns != previous.evidence_mono_ns
    if evidence_mono_ns is not None and is_new:
        return Watch(run, evidence_mono_ns, _look_ns(now_mono_ns - evidence_mono_ns), now_mono_ns)
    silent_ns = previous.silent_ns + _look_ns(now_mono_ns - previous.seen_mono_ns)
    return replace(previous, silent_ns=silent_ns, seen_mono_ns=now_mono_ns)


def is_stale(watch: Watch, stale_after_ns: int | None) -> bool:
    """Whether the run must be taken for hung and be killed. `stale_after_ns` None: never."""
    return stale_after_ns is not None and watch.silent_ns > stale_after_ns


def _look_ns(elapsed_ns: int) -> int:
    return max(0, min(elapsed_ns, _MAX_LOOK_NS))
