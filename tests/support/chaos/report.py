"""The suite's results in a page of the docs: each kind between two marks, written by the run itself."""

import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.chaos.scenario import Scenario

KINDS = ("named faults", "seeds")
# Words that a problem begins with, and what they count.
_GRAVE = {"HANG": "hangs", "CORRUPT": "corrupt checkpoints", "LOST": "lost checkpoints", "UNVERIFIED": "wrong resumes"}
_ENDS = {
    0: "finished",
    75: "stopped with a checkpoint",
    76: "stopped, last step unsaved",
    77: "desync",
    79: "peer lost",
}


@dataclass(frozen=True)
class Line:
    """One scenario's end, `problems` what can be said against it."""

    scenario: Scenario
    codes: tuple[int | None, ...]
    resumed: bool
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Conditions:
    """Where and when figures were taken."""

    day: str
    cores: int
    seconds: float
    torch: str

    def __str__(self) -> str:
        python = platform.python_version()
        return f"{self.day}, {self.cores} cores, Python {python}, torch {self.torch}, {self.seconds:.0f} s"


def marks(kind: str) -> tuple[str, str]:
    """The lines before and after the part of a page that holds `kind`."""
    return f"<!-- {kind}: begin (written by the run) -->", f"<!-- {kind}: end -->"


def rewrite(page: Path, lines: Sequence[Line], conditions: Conditions) -> None:
    """Put the results between the marks of `page`. Raises ValueError when it has none."""
    text = page.read_text(encoding="utf-8")
    seeds = [line for line in lines if line.scenario.is_seeded]
    named = [line for line in lines if not line.scenario.is_seeded]
    if named:
        text = _put(text, "named faults", f"{_figures(named, conditions)}\n{table(named)}", page)
    if seeds:
        text = _put(text, "seeds", _figures(seeds, conditions) + _ends(seeds), page)
    page.write_text(text, encoding="utf-8")


def names_in(page: Path) -> list[str]:
    """The named faults that the page tells of, in its order."""
    begin, end = marks("named faults")
    part = page.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0]
    rows = [line for line in part.splitlines() if line.startswith("| ")]
    return [row.split("|")[1].strip() for row in rows[2:]]


def table(lines: Sequence[Line]) -> str:
    """One row for each scenario: its name, how its ranks ended, and what came then."""
    rows = ["| fault | exit codes of the ranks | then |", "| --- | --- | --- |"]
    rows += [f"| {line.scenario.name} | {_codes(line)} | {_then(line)} |" for line in lines]
    return "\n".join(rows) + "\n"


def _put(text: str, kind: str, content: str, page: Path) -> str:
    begin, end = marks(kind)
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page} has no place for the {kind}: wanted the lines {begin} and {end}")
    return f"{head}{begin}\n{content}{end}{tail}"


def _figures(lines: Sequence[Line], conditions: Conditions) -> str:
    counted = Counter(problem.partition(":")[0].split()[0] for line in lines for problem in line.problems)
    grave = ", ".join(f"{counted[word]} {what}" for word, what in _GRAVE.items())
    failed = sum(bool(line.problems) for line in lines)
    return f"{len(lines)} runs ({conditions}): {len(lines) - failed} ended as they must; {grave}.\n"


def _ends(lines: Sequence[Line]) -> str:
    """How the survivors of all runs ended, by the gravest code of each."""
    worst = Counter(max((code for code in line.codes if code is not None and code >= 0), default=0) for line in lines)
    told = ", ".join(f"{count} {_ENDS.get(code, code)}" for code, count in sorted(worst.items()))
    resumed = sum(line.resumed for line in lines)
    return f"Of these {told}; {resumed} were resumed afterwards.\n"


def _codes(line: Line) -> str:
    victims = line.scenario.victims if "launcher" not in line.scenario.needs else frozenset()
    return ", ".join(
        str(code) if rank not in victims else ("frozen" if code is None else "killed")
        for rank, code in enumerate(line.codes)
    )


def _then(line: Line) -> str:
    if line.problems:
        return f"**{'; '.join(line.problems)}**"
    return "resumed: same weights" if line.resumed else "same weights"
