"""`clockgate-train lint PATH... [--json] [--fix OUT] [training flags]`.

The data flags of the training command mean here what they mean there. Exits 0 when nothing was found, 1 with findings,
2 for usage, 78 when a tokenizer or a library that is needed cannot be had.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clockgate_trainer.data.formats import DEFAULT_FORMAT
from clockgate_trainer.data.local import SUFFIXES, file_rows
from clockgate_trainer.data.record import Fault, Record
from clockgate_trainer.data.source import guess_format, open_shares
from clockgate_trainer.data.tokens import Coder
from clockgate_trainer.errors import ConfigError, ExitCode, TrainerError, UsageError
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.lint.fix import clean_copy, outputs
from clockgate_trainer.lint.inspect import Report, inspect
from clockgate_trainer.lint.text import as_json, lines

_USAGE = (
    "usage: clockgate-train lint PATH... [--json] [--fix OUT.jsonl] [--model_name_or_path M] [--dataset_format F] ...\n"
    "       a PATH is a data file or a folder of them; without one, --dataset names what is looked at"
)
_FOUND = 1
_EVERY_ROWS = 20_000


@dataclass(frozen=True)
class _Wish:
    """The command line."""

    paths: tuple[Path, ...]
    settings: Settings
    with_model: bool
    with_dataset: bool
    as_json: bool
    out: Path | None


@dataclass(frozen=True)
class _Subject:
    """One data set to look at; `path` is None for one of the hub."""

    name: str
    path: Path | None
    format: str
    guessed: bool
    rows: Callable[[], Iterator[Record | Fault]]


def main(argv: Sequence[str]) -> int:
    """Look, tell, and return the exit code."""
    if {"-h", "--help"} & set(argv):
        print(_USAGE)
        return ExitCode.DONE
    try:
        return _lint(_read(argv))
    except TrainerError as err:
        print(f"clockgate-train lint: {err}", file=sys.stderr)
        return err.exit_code


def _lint(wish: _Wish) -> int:
    subjects = list(_subjects(wish))
    copies: Mapping[Path, Path] = {}
    if wish.out is not None:
        copies = outputs([subject.path for subject in subjects if subject.path is not None], wish.out)
    coder = _coder(wish, subjects) if wish.with_model else None
    told = []
    found = False
    for subject in subjects:
        copy = None if subject.path is None else copies.get(subject.path)
        report = _inspect(subject, coder, copy)
        found = found or bool(report.findings)
        if wish.as_json:
            told.append(as_json(report, guessed=subject.guessed, copy=copy))
        else:
            print("\n".join(map(_printable, lines(report, guessed=subject.guessed, copy=copy))), flush=True)
    if wish.as_json:
        print(json.dumps({"clean": not found, "files": told}, indent=2))
    return _FOUND if found else ExitCode.DONE


def _read(argv: Sequence[str]) -> _Wish:
    words = list(argv)
    out: Path | None = None
    machine = "--json" in words
    words = [word for word in words if word != "--json"]
    if "--fix" in words:
        place = words.index("--fix")
        if place + 1 >= len(words) or words[place + 1].startswith("--"):
            raise UsageError("--fix has no value: wanted the name of a clean copy")
        out = Path(words[place + 1])
        del words[place : place + 2]
    first_flag = next((place for place, word in enumerate(words) if word.startswith("--")), len(words))
    paths, flags = words[:first_flag], words[first_flag:]
    given = {word[2:].partition("=")[0] for word in flags if word.startswith("--")}
    if not paths and "dataset" not in given:
        raise UsageError(f"nothing to look at\n{_USAGE}")
    with_model = "model_name_or_path" in given
    return _Wish(tuple(map(Path, paths)), parse(flags), with_model, "dataset" in given and not paths, machine, out)


def _subjects(wish: _Wish) -> Iterator[_Subject]:
    settings = wish.settings
    if wish.with_dataset:
        token = settings.use_auth_token or None
        opened = open_shares(settings.dataset, settings.dataset_format, cache_dir=settings.cache_dir, token=token)
        for share, source in opened:
            path = Path(share.name) if Path(share.name).exists() else None
            yield _Subject(share.name, path, source.format, False, source.rows)
        return
    for path in wish.paths:
        for file in _files(path):
            yield _local(file, settings.dataset_format)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())
        if not files:
            raise UsageError(f"{path} holds no data files: wanted {', '.join(SUFFIXES)}")
        return files
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path} is no data file that is read: wanted {', '.join(SUFFIXES)}")
    return [path]


def _local(path: Path, format_name: str | None) -> _Subject:
    guess = guess_format(path) if format_name is None else None
    guessed = guess not in (None, DEFAULT_FORMAT)
    return _Subject(str(path), path, format_name or guess or DEFAULT_FORMAT, guessed, lambda: file_rows(path))


def _coder(wish: _Wish, subjects: Sequence[_Subject]) -> Coder:
    # Takes seconds to import, and a look without a tokenizer does without.
    from clockgate_trainer.data.tokenizer import load_tokenizer, make_coder  # noqa: PLC0415

    chats = any(subject.format == "chat" for subject in subjects)
    return make_coder(wish.settings, load_tokenizer(wish.settings), chats=chats)


def _inspect(subject: _Subject, coder: Coder | None, copy: Path | None) -> Report:
    rows = _counted(subject)
    if copy is None:
        return inspect(subject.name, subject.format, rows, coder)
    try:
        with clean_copy(copy) as clean:
            return inspect(subject.name, subject.format, rows, coder, clean.add)
    except OSError as err:
        raise ConfigError(f"--fix {copy} cannot be written: {err.strerror or err}") from err


def _counted(subject: _Subject) -> Iterator[Record | Fault]:
    """The rows of the subject; says how far it is where a person waits."""
    for number, row in enumerate(subject.rows(), start=1):
        if number % _EVERY_ROWS == 0:
            print(f"{subject.name}: {number:,} rows so far", file=sys.stderr, flush=True)
        yield row


def _printable(text: str) -> str:
    """The same without halves of surrogate pairs, which no terminal takes."""
    return text.encode("utf-8", "backslashreplace").decode()
