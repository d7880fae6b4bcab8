"""What ranks do together before the first step: fail alike, compare flags and data."""

from collections.abc import Callable
from dataclasses import fields
from typing import TypeVar

from clockgate_trainer.data.tokens import TokenData
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.train.distributed import Meeting, SharedError

# What may differ between nodes without making them different runs.
_LOCAL_FLAGS = (
    "alert_after_hold",
    "alert_exec",
    "alert_webhook",
    "cache_dir",
    "clock_daemon",
    "device",
    "output_dir",
    "token_cache",
    "use_auth_token",
)
_Result = TypeVar("_Result")


def together(meeting: Meeting, work: Callable[[], _Result]) -> _Result:
    """The result of `work` on this rank, once it has succeeded on all. A collective.

    Raises SharedError on every rank when it raised ConfigError on any, so that none waits for another in vain.
    """
    done: list[_Result] = []
    problem: str | None = None
    try:
        done.append(work())
    except ConfigError as err:
        problem = str(err)
    problems = meeting.gather(problem)
    failed = tuple(rank for rank, text in enumerate(problems) if text is not None)
    if failed:
        raise SharedError(_merge(problems), ranks=failed)
    return done[0]


def demand_same_run(meeting: Meeting, settings: Settings, data: TokenData) -> None:
    """Raise SharedError when they were started with different flags or read different data."""
    everyone = meeting.gather((settings, data.fingerprint))
    first, first_data = everyone[0]
    for rank, (other, other_data) in enumerate(everyone):
        names = [field.name for field in fields(Settings) if field.name not in _LOCAL_FLAGS]
        for name in names:
            mine, theirs = getattr(first, name), getattr(other, name)
            if mine != theirs:
                raise SharedError(
                    f"--{name} is {mine} on rank 0 and {theirs} on rank {rank}: wanted the same on all", ranks=(rank,)
                )
        if first_data != other_data:
            raise SharedError(
                f"rank {rank} reads other data than rank 0: wanted the same {settings.dataset} on all nodes",
                ranks=(rank,),
            )


def _merge(problems: tuple[str | None, ...]) -> str:
    texts = {text for text in problems if text is not None}
    if len(texts) == 1 and None not in problems:
        return texts.pop()
    return "\n".join(f"rank {rank}: {text}" for rank, text in enumerate(problems) if text is not None)
