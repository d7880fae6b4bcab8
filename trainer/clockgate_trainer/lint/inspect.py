"""One data set looked at row by row, with the readers and limits that training uses, so both find the same. Pure.

What is found is a value; telling and writing are done by others.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from clockgate_trainer.data.formats import Chat, Example, Pair
from clockgate_trainer.data.local import examples
from clockgate_trainer.data.record import Fault, Record
from clockgate_trainer.data.tokens import Coded, Coder, code

_SMALLEST_BUCKET = 16


@dataclass(frozen=True)
class Spread:
    """How long rows are: `unit` is tokens or characters, `buckets` counts rows up to each power of two."""

    unit: str
    median: int
    most: int
    nearly_all: int
    longest: int
    buckets: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Report:
    """What was found. `kept` rows have no finding; `dropped` counts the findings for which others were left out."""

    name: str
    format: str
    rows: int
    kept: int
    findings: tuple[Fault, ...]
    spread: Spread | None
    notes: tuple[str, ...]

    @property
    def dropped(self) -> Mapping[str, int]:
        """Findings by kind."""
        return Counter(fault.kind.value for fault in self.findings)


@dataclass
class _Tally:
    """Counted on the way through the rows."""

    rows: int = 0
    kept: int = 0
    cut_prompts: int = 0
    cut_answers: int = 0
    findings: list[Fault] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)


def inspect(
    name: str,
    format_name: str,
    rows: Iterable[Record | Fault],
    coder: Coder | None,
    keep: Callable[[Mapping[str, object]], None] | None = None,
) -> Report:
    """Look at every row; those without a finding go to `keep`. Without a coder nothing is said about tokens."""
    tally = _Tally()
    for found in rows:
        faults = [found] if isinstance(found, Fault) else list(_look(found, format_name, coder, tally))
        tally.rows += isinstance(found, Record) or found.line is not None
        tally.findings += faults
        if not faults and isinstance(found, Record):
            tally.kept += 1
            if keep is not None:
                keep(found.row)
    spread = _spread(tally.lengths, "characters" if coder is None else "tokens")
    return Report(name, format_name, tally.rows, tally.kept, tuple(tally.findings), spread, _notes(tally, coder))


def _look(record: Record, format_name: str, coder: Coder | None, tally: _Tally) -> Iterator[Fault]:
    found: Iterable[Example | Fault] = examples(iter([record]), format_name)
    for item in found if coder is None else code(found, coder):
        if isinstance(item, Fault):
            yield item
        elif isinstance(item, Coded):
            tally.lengths.append(item.prompt_tokens + item.answer_tokens)
            tally.cut_prompts += item.cut_prompt
            tally.cut_answers += item.cut_answer
        else:
            tally.lengths.append(_characters(item))


def _characters(example: Pair | Chat) -> int:
    if isinstance(example, Pair):
        return len(example.prompt) + len(example.answer)
    return sum(len(message.content) for message in example.messages)


def _spread(lengths: list[int], unit: str) -> Spread | None:
    if not lengths:
        return None
    ordered = sorted(lengths)
    buckets: Counter[int] = Counter(max(_SMALLEST_BUCKET, 1 << max(length - 1, 0).bit_length()) for length in ordered)

    def share(part: float) -> int:
        return ordered[min(int(part * len(ordered)), len(ordered) - 1)]

    return Spread(unit, share(0.5), share(0.9), share(0.99), ordered[-1], tuple(sorted(buckets.items())))


def _notes(tally: _Tally, coder: Coder | None) -> tuple[str, ...]:
    if coder is None:
        return ("token limits were not looked at: give --model_name_or_path for that",)
    notes = []
    if tally.cut_prompts:
        notes.append(f"{tally.cut_prompts} prompts are cut by --source_max_len {coder.lengths.source_max_len}")
    if tally.cut_answers:
        notes.append(f"{tally.cut_answers} answers are cut by --target_max_len {coder.lengths.target_max_len}")
    if coder.marks.pad == coder.marks.end:
        notes.append(
            "the pad token is the end mark: this trainer masks by length, so end marks are learned all the same; one "
            "that masks by token would make a model that never stops"
        )
    return tuple(notes)
