"""What a row of each data format means: a prompt and the answer to learn. Pure.

The two Alpaca prompts are the public ones of the Stanford Alpaca project, with the trailing space that qlora.py gives
them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_WITH_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further context. "
    "Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response: "
)
_WITHOUT_INPUT = (
    "Below is an instruction that describes a task. "
    "Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Response: "
)
DEFAULT_FORMAT = "input-output"


@dataclass(frozen=True)
class Columns:
    """Columns of a format: all hold text; an optional one may be absent, which counts as empty."""

    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pair:
    """One training row: `answer` is learned after `prompt`; `line` is its line in the file, from 1."""

    prompt: str
    answer: str
    line: int


_ALPACA = Columns(("instruction", "output"), ("input",))
COLUMNS: Mapping[str, Columns] = {
    "alpaca": _ALPACA,
    "alpaca-clean": _ALPACA,
    "input-output": Columns(("input", "output")),
}


def pair_of(format_name: str, row: Mapping[str, str], line: int) -> Pair:
    """Turn a row that has the columns of `format_name` into a pair."""
    if COLUMNS[format_name] is _ALPACA:
        return Pair(_alpaca_prompt(row["instruction"], row.get("input", "")), row["output"], line)
    return Pair(row["input"], row["output"], line)


def format_with(columns: frozenset[str]) -> str | None:
    """The format whose needed columns are all among `columns`, for a hint; None when there is none."""
    return next((name for name, wanted in COLUMNS.items() if columns.issuperset(wanted.needed)), None)


def _alpaca_prompt(instruction: str, extra: str) -> str:
    if extra:
        return _WITH_INPUT.format(instruction=instruction, input=extra)
    return _WITHOUT_INPUT.format(instruction=instruction)
