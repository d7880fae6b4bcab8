"""The man pages against the programs: options, configuration keys with their defaults, exit codes."""

import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from clockgate_trainer.errors import ExitCode
from clockgated import config
from support.tools import ROOT, require_tool

pytestmark = pytest.mark.integration

FOLDER = ROOT / "docs/man"
PAGES = sorted(path for path in FOLDER.iterdir() if re.fullmatch(r"\.[1-8]", path.suffix))


def text_of(name: str) -> str:
    """A page without the marks of troff."""
    return (FOLDER / name).read_text(encoding="utf-8").replace("\\-", "-").replace("\\&", "").replace("\\e", "\\")


def exit_codes(name: str) -> set[int]:
    status = text_of(name).partition(".Sh EXIT STATUS")[2].partition(".Sh ")[0]
    return {int(code) for code in re.findall(r"^\.It (\d+)$", status, re.MULTILINE)}


def test_pages_say_what_the_programs_say() -> None:
    done = subprocess.run(
        [sys.executable, FOLDER / "generate.py", "--check"],
        env={"PYTHONPATH": ":".join(str(ROOT / root) for root in ("daemon", "trainer", "protos"))},
        capture_output=True,
        text=True,
        check=False,
        timeout=55,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_pages_are_clean(page: Path) -> None:
    done = subprocess.run(
        [require_tool("mandoc"), "-T", "lint", "-W", "warning", page],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("page", "program"),
    [
        ("clockgated.8", "clockgated.main"),
        ("clockgatectl.1", "clockgated.ctl.main"),
        ("clockgate-train.1", "clockgate_trainer"),
    ],
)
def test_every_option_of_the_help_is_in_the_page(page: str, program: str) -> None:
    help_text = subprocess.run(
        [sys.executable, "-m", program, "--help"], capture_output=True, text=True, check=True, timeout=50
    ).stdout
    options = set(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", help_text, re.MULTILINE))
    assert len(options) >= 3
    shown = set(re.findall(r"Fl (-[\w-]+)", text_of(page)))
    assert {option.removeprefix("-") for option in options} <= shown


def test_every_key_of_the_configuration_is_in_its_page_with_its_default() -> None:
    page = text_of("clockgated.toml.5")
    sections = dict(re.findall(r"^\.Ss \[(\w+)\]\n(.*?)^\.El$", page, re.DOTALL | re.MULTILINE))
    usual = config.Config()
    assert set(sections) == {one.name for one in fields(usual)}
    for name, text in sections.items():
        # A key without a value in its line has no default.
        shown = dict(re.findall(r"^\.It Ic (\w+)(?: = (.*))?$", text.replace("\\(dq", '"'), re.MULTILINE))
        section = getattr(usual, name)
        assert set(shown) == {one.name for one in fields(section)}
        for key, value in shown.items():
            default = tomllib.loads(f"x = {value}")["x"] if value else None
            # An empty text stands for none where that can be said in TOML.
            assert _plain(default) == _plain(getattr(section, key)) or (default, getattr(section, key)) == ("", None)


def _plain(value: Any) -> Any:
    """Configured and built-in values in one form: paths and enumerations as texts, tuples as lists."""
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value if isinstance(value, bool | int | float) else str(value)


def test_exit_codes_are_those_of_the_contract() -> None:
    assert exit_codes("clockgate-train.1") == set(ExitCode)
    assert exit_codes("clockgatectl.1") == {0, 1, 2, 3}
    assert exit_codes("clockgated.8") == {0, 1, 2, 78}
