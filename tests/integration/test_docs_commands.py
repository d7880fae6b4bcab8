"""Every command that README and docs show is run here, or by another test that is named, or is listed with the reason.

Commands are the lines of fenced blocks marked `sh`, and in unmarked blocks those that begin with `$ ` or with a program
of ours.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from support.daemon import SOURCE_ROOTS, Clockgated, clockgated, toml
from support.tools import ROOT, find_tool

pytestmark = pytest.mark.integration

PAGES = ("README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
_OURS = re.compile(r"(?:sudo )?(?:\.venv/bin/)?(?:clockgated|clockgatectl|clockgate-train|grpcurl|make)\b")


@dataclass(frozen=True)
class Rule:
    """What becomes of commands of `page` that match `command`: run here unless `tested_in` or `needs` is set."""

    page: str
    command: str
    tested_in: str = ""
    needs: str = ""

    def fits(self, page: str, command: str) -> bool:
        """Whether this rule is about that command. Both patterns have to match from the beginning."""
        return bool(re.match(self.page, page) and re.match(self.command, command))


NEEDS = {
    "the package",
    "systemd",
    "a GPU cluster",
    "a container",
    "Kubernetes",
    "chronyd",
    "a run",
    "a plan",
    "a lease",
}
RULES = (
    Rule("README|CONTRIBUTING", r"make ", tested_in="integration/test_documented_commands.py"),
    Rule("README", r"\.venv/bin/", tested_in="integration/test_documented_commands.py"),
    Rule("docs/api", "", tested_in="integration/test_documented_commands.py"),
    Rule("docs/grpcurl", "", tested_in="integration/test_grpcurl_page.py"),
    Rule("docs/adapters", "", tested_in="integration/test_adapters_page.py"),
    Rule("docs/data", "", tested_in="integration/test_documented_data.py"),
    Rule("docs/training", "", tested_in="unit/trainer/test_training_page.py"),
    Rule("docs/reliability", "make cluster", tested_in="unit/trainer/test_chaos_plan.py"),
    Rule("", "sudo apt-get ", needs="the package"),
    Rule("", r"(sudo )?systemctl |journalctl ", needs="systemd"),
    Rule("", "chronyc ", needs="chronyd"),
    Rule("", "(docker|podman|apptainer) ", needs="a container"),
    Rule("", "kubectl ", needs="Kubernetes"),
    Rule("docs/evaluation", "", tested_in="unit/trainer/test_evaluation_flags.py"),
    Rule("README", "clockgate-train (launch|lint|verify|plan)", tested_in="integration/test_documented_commands.py"),
    Rule("docs/checkpoints", "clockgate-train (verify|repair)", needs="a run"),
    Rule("docs/tuning", "clockgatectl tune apply HASH", needs="a plan"),
    Rule("", r"(sudo )?clockgatectl (doctor|support-bundle)", tested_in="integration/test_doctor_and_bundle.py"),
    Rule("", r"(sudo )?clockgatectl (?!tune apply|lease break)"),
    Rule("", r"(sudo )?clockgated --(check|print-plan)"),
    Rule("", r"ss "),
    Rule("README", "grpcurl "),
)


def commands_of(page: str) -> list[str]:
    """Command lines of a page, continuation lines joined, comments cut off."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            command = line.removeprefix("$ ")
            if language in ("sh", "bash", "console") or (not language and (line != command or _OURS.match(line))):
                found.append(re.sub(r"(^|\s+)# .*$", "", command).strip())
    return [re.sub(r" {2,}", " ", command) for command in found if command]


@cache
def everything() -> tuple[tuple[str, str], ...]:
    """Every command with its page."""
    return tuple((page, command) for page in PAGES for command in commands_of(page))


def rule_of(page: str, command: str) -> Rule | None:
    """The first rule that is about this command."""
    return next((rule for rule in RULES if rule.fits(page, command)), None)


def run_here() -> list[str]:
    """Each command that is run here, once: the fake sudo changes nothing about it."""
    found = [(command, rule_of(page, command)) for page, command in everything()]
    here = [command for command, rule in found if rule and not rule.tested_in and not rule.needs]
    return list({command.removeprefix("sudo "): command for command in here}.values())


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clockgated]:
    folder = tmp_path_factory.mktemp("node")
    recording = folder / "reading.jsonl"
    reading = {"after_s": 0, "bound_ns": 200_000, "identity": "ntp:192.0.2.1", "stratum": 2}
    recording.write_text(json.dumps(reading) + "\n")
    config = toml(folder, clock='source = "recorded"\nsync_cycles = 1', extra=f'[recorded]\nfile = "{recording}"')
    with clockgated(folder, config) as running:
        yield running


def put_programs(folder: Path, daemon: Clockgated) -> None:
    """Ours, which ask the daemon under test, and sudo."""
    admin = f'case "$1" in leases) set -- "$@" --admin-address {daemon.admin_socket};; esac'
    revert = f'case "$2" in revert) set -- "$@" --admin-address {daemon.admin_socket};; esac'
    python = f"PYTHONPATH={SOURCE_ROOTS} exec {sys.executable} -m"
    programs = {
        "sudo": 'exec "$@"',
        "clockgatectl": f'{admin}\n{revert}\n{python} clockgated.ctl.main "$@"',
        "clockgated": f'{python} clockgated.main "$@"',
        "grpcurl": f'exec {find_tool("grpcurl")} "$@"',
    }
    folder.mkdir()
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)


@pytest.mark.parametrize("command", run_here())
def test_command_works_beside_a_real_daemon(command: str, daemon: Clockgated, tmp_path: Path) -> None:
    put_programs(tmp_path / "bin", daemon)
    typed = command.replace("/etc/clockgate/clockgated.toml", str(daemon.config))
    typed = typed.replace("/run/clockgate/clockgate.sock", str(daemon.socket))
    done = subprocess.run(
        ["sh", "-c", typed],
        env=os.environ | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "CLOCKGATE_ADDRESS": str(daemon.socket)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    # No is an answer: of a doctor who finds faults, of a plan that cannot be had here.
    answers = {0, 1, 4, 5} if "clockgatectl" in command else {0}
    assert done.returncode in answers, done.stderr
    assert done.stdout.strip() or "wait" in command, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_is_run_or_listed(page: str) -> None:
    loose = [command for command in commands_of(page) if rule_of(page, command) is None]
    assert loose == [], "run them here, or list them with what they need"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.page}:{rule.command}")
def test_list_has_no_rule_without_a_command_and_no_unknown_reason(rule: Rule) -> None:
    assert any(rule_of(page, command) is rule for page, command in everything())
    assert not rule.needs or rule.needs in NEEDS
    if rule.tested_in:
        text = (ROOT / "tests" / rule.tested_in).read_text(encoding="utf-8")
        # A test of a page names it; one of a command, on whatever page, names that.
        stems = [Path(page).stem for page in PAGES if re.match(rule.page, page)]
        names = stems if rule.page else re.findall(r"doctor|support-bundle", rule.command)
        assert names
        assert all(name in text for name in names), f"{rule.tested_in} does not name {names}"


def test_options_of_commands_that_are_not_run_exist() -> None:
    pages = {"clockgatectl": "clockgatectl.1", "clockgated": "clockgated.8", "clockgate-train": "clockgate-train.1"}
    for page, command in everything():
        rule = rule_of(page, command)
        words = [word for word in shlex.split(command) if word != "sudo"]
        program = words[0].removeprefix(".venv/bin/")
        # Other commands of the trainer than training itself have options of their own.
        is_other = program == "clockgate-train" and not words[1].startswith("--")
        if rule is None or not rule.needs or program not in pages or is_other:
            continue
        manual = (ROOT / "docs/man" / pages[program]).read_text(encoding="utf-8").replace("\\-", "-")
        for option in (word.partition("=")[0] for word in words if word.startswith("--") and word != "--"):
            assert f"Fl {option.removeprefix('-')}" in manual, f"{page}: {command}: {option}"


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if target.startswith(("http:", "https:")):
                continue
            file, _, anchor = target.partition("#")
            there = (ROOT / page).parent / file if file else ROOT / page
            assert there.exists(), f"{page}: {target}"
            if anchor and there.suffix == ".md":
                assert anchor in _anchors(there), f"{page}: {target}"


def test_index_names_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    assert [page for page in PAGES if page.startswith("docs/") and f"]({Path(page).name})" not in index] == [
        "docs/README.md"
    ]


def test_alerts_lead_to_a_section() -> None:
    rules = (ROOT / "packaging/prometheus/clockgate.rules.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"(docs/[\w-]+\.md)#([\w-]+)", rules))
    assert named
    for page, anchor in named:
        assert anchor in _anchors(ROOT / page), f"{page}#{anchor}"


def _anchors(page: Path) -> set[str]:
    """Names of a page's headings as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
