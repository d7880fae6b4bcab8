"""The command lines of `script_lines.toml`, and what of them changes when they are tried on something tiny."""

import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_PROGRAM = "qlora.py"


@dataclass(frozen=True)
class ScriptLine:
    """One published command line. `launcher`: the words before qlora.py; `flags`: those after it."""

    name: str
    page: str
    launcher: tuple[str, ...]
    flags: tuple[str, ...]
    shape: str | None
    environment: Mapping[str, str]
    refused: str | None

    def with_values(self, values: Mapping[str, str]) -> list[str]:
        """The flags, each of `values` with its value: in its place, or at the end where the line has it not."""
        words: list[str] = []
        left = dict(values)
        old = iter(self.flags)
        for word in old:
            name, equals, _ = word.removeprefix("--").partition("=")
            if not word.startswith("--") or name not in values:
                words.append(word)
                continue
            words += [f"--{name}", values[name]]
            left.pop(name, None)
            if not equals:
                next(old)
        return words + [word for name, value in left.items() for word in (f"--{name}", value)]


def _read(entry: Mapping[str, str | Mapping[str, str]]) -> ScriptLine:
    line, environment = entry["line"], entry.get("environment", {})
    assert isinstance(line, str)
    assert isinstance(environment, Mapping)
    words = shlex.split(line.replace("\\\n", " "))
    place = words.index(_PROGRAM)
    shape, refused = entry.get("shape"), entry.get("refused")
    return ScriptLine(
        name=str(entry["name"]),
        page=str(entry["page"]),
        launcher=tuple(words[:place]),
        flags=tuple(words[place + 1 :]),
        shape=None if shape is None else str(shape),
        environment=environment,
        refused=None if refused is None else str(refused),
    )


def _all() -> Mapping[str, ScriptLine]:
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {entry["name"]: _read(entry) for entry in table["lines"]}


SCRIPT_LINES = _all()
