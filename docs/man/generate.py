r"""Write the options and keys in the man pages from what the programs say of themselves; the prose around stays.

    python docs/man/generate.py            write
    python docs/man/generate.py --check    exit 1 when a page is not what it would be

A page holds blocks that begin with `.\\" begin SOURCE` and end with `.\\" end`.
"""

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from clockgate_trainer.__main__ import main as train
from clockgate_trainer.flags.help import help_text
from clockgated.ctl.main import main as ctl
from clockgated.main import main as daemon

HERE = Path(__file__).parent
SHIPPED_CONFIG = HERE.parents[1] / "packaging/etc/clockgated.toml"
PAGES = ("clockgated.8", "clockgatectl.1", "clockgate-train.1", "clockgated.toml.5")

_BLOCK = re.compile(r'^\.\\" begin (?P<source>[^\n]*)\n.*?^\.\\" end$', re.DOTALL | re.MULTILINE)
_ITEM = re.compile(r"^  (?P<deeper> {2})?(?P<head>\S.*)$")
_FLAG = re.compile(r"^(?P<head>--[\w-]+(?: (?:[A-Z]+|\{[^} ]*\}|[\w.]+(?:\|[\w.]+)+))?)(?: +(?P<text>\S.*))?$")
_KEY = re.compile(r"^(?P<comment># )?(?P<key>[a-z][a-z0-9_]*) = (?P<value>.*)$")


@dataclass
class Item:
    """A head, such as an option with its value, and what is said about it."""

    head: str
    text: str


@dataclass
class Section:
    """A heading of a help text or a configuration, and its items."""

    title: str
    items: list[Item]


def read_help(text: str) -> list[Section]:
    """Sections and items of a help text of argparse, or of clockgate-train."""
    sections: list[Section] = []
    for line in text.splitlines():
        heading = re.fullmatch(r"(\S[^:]*):", line)
        if heading:
            sections.append(Section(heading[1], []))
        elif sections and (found := _ITEM.match(line)):
            _take(sections[-1], found["head"], deeper=bool(found["deeper"]))
        elif sections and sections[-1].items and line.startswith("    ") and line.strip():
            last = sections[-1].items[-1]
            last.text = f"{last.text} {line.strip()}".strip()
        elif line and not line.startswith(" "):
            sections.append(Section("", []))
    return [one for one in sections if one.title and one.items]


def _take(section: Section, head: str, *, deeper: bool) -> None:
    is_option = head.startswith("-")
    if is_option or deeper:
        flag = _FLAG.match(head) if "  " not in head.strip() else None
        parts = re.split(r" {2,}", head, maxsplit=1)
        name, text = (flag["head"], flag["text"] or "") if flag else (parts[0], parts[1] if len(parts) > 1 else "")
        section.items.append(Item(name, text))


def read_config(text: str) -> list[Section]:
    """Sections and keys of the shipped configuration, with its comments."""
    sections: list[Section] = []
    comments: list[str] = []
    for line in text.splitlines():
        found = _KEY.match(line)
        if line.startswith("["):
            sections.append(Section(line.strip(), []))
            comments = []
        elif found and sections:
            # A key that is commented out has no default.
            given = "" if found["comment"] else f" = {found['value']}"
            example = [f"No default; for instance {found['value']}."] if found["comment"] else []
            sections[-1].items.append(Item(f"{found['key']}{given}", " ".join([*comments, *example])))
            comments = []
        elif line.startswith("#") and sections:
            comments.append(line.removeprefix("#").strip())
        elif not line:
            comments = []
    return sections


def said(program: Callable[[list[str]], int], *words: str) -> str:
    """What a program prints for these words and --help."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        program([*words, "--help"])
    return out.getvalue()


def lines_of(source: str) -> Iterator[str]:
    """The generated lines of a block."""
    match source.split():
        case ["config"]:
            yield from _sections(read_config(SHIPPED_CONFIG.read_text(encoding="utf-8")), "Ic")
        case ["clockgate-train"]:
            yield from _sections(read_help(help_text()), "Fl")
        case ["clockgate-train", *words]:
            yield from _sections(read_help(said(train, *words)), "Fl")
        case ["clockgated"]:
            yield from _sections(read_help(said(daemon)), "Fl")
        case ["clockgatectl", *words]:
            yield from _command(words)
        case _:
            raise ValueError(f"block {source!r}: wanted config, clockgated, clockgatectl or clockgate-train")


def _command(words: list[str]) -> Iterator[str]:
    sections = read_help(said(ctl, *words))
    if not words:
        commands = [one.head for section in sections if section.title == "commands" for one in section.items]
        yield from _sections([one for one in sections if one.title == "options"], "Fl")
        for command in commands:
            yield from _command([command])
        return
    about = next(
        item.text for section in read_help(said(ctl, *words[:-1])) for item in section.items if item.head == words[-1]
    )
    yield f".Ss {' '.join(words)}"
    yield from _text(f"{about[:1].upper()}{about[1:]}.")
    options = [item for section in sections if section.title == "options" for item in section.items]
    options = [item for item in options if not item.head.startswith("-h")]
    places = [item for section in sections if section.title == "positional arguments" for item in section.items]
    yield from _items([*places, *options], "Fl")
    for section in sections:
        if section.title not in ("options", "positional arguments"):
            for item in section.items:
                yield from _command([*words, item.head])


def _sections(sections: list[Section], macro: str) -> Iterator[str]:
    for section in sections:
        if len(sections) > 1:
            yield f".Ss {section.title}"
        yield from _items(section.items, macro)


def _items(items: list[Item], macro: str) -> Iterator[str]:
    if not items:
        return
    yield ".Bl -tag -width Ds"
    for item in items:
        yield f".It {_head(item.head, macro)}"
        yield from _text(item.text)
    yield ".El"


def _head(head: str, macro: str) -> str:
    if macro != "Fl" or not head.startswith("-"):
        return f"Ic {_escaped(head)}"
    parts = []
    for option in head.split(", "):
        name, _, value = option.partition(" ")
        parts.append(f"Fl {_escaped(name.removeprefix('-'))}" + (f" Ar {_escaped(value)}" if value else ""))
    return " , ".join(parts)


def _text(text: str) -> Iterator[str]:
    """Lines that begin with a sentence each, none of which troff takes for a request."""
    for sentence in re.split(r"(?<=[.!?]) +(?=[A-Z])", text):
        if sentence:
            escaped = _escaped(sentence)
            yield f"\\&{escaped}" if escaped[0] in ".'" else escaped


def _escaped(text: str) -> str:
    return (
        text.replace("\\", "\\e").replace("-", "\\-").replace("µ", "\\(mc").replace("±", "\\(+-").replace('"', "\\(dq")
    )


def renewed(page: str) -> str:
    """The page with fresh blocks."""

    def fresh(block: re.Match[str]) -> str:
        return "\n".join([f'.\\" begin {block["source"]}', *lines_of(block["source"]), '.\\" end'])

    return _BLOCK.sub(fresh, page)


def main(argv: list[str]) -> int:
    """Write or check every page; returns the exit code."""
    os.environ["COLUMNS"] = "100"  # argparse breaks its lines by it
    stale = []
    for name in PAGES:
        path = HERE / name
        before = path.read_text(encoding="utf-8")
        after = renewed(before)
        if before != after:
            stale.append(name)
        if "--check" not in argv:
            path.write_text(after, encoding="utf-8")
    if stale and "--check" in argv:
        print(f"man pages: {', '.join(stale)}: not what the programs say; run: python docs/man/generate.py")
    return 1 if stale and "--check" in argv else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
