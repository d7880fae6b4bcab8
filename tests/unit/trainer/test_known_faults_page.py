"""docs/known-faults.md: every row tells what happens here and names tests that exist."""

import re

import pytest
from support.tools import ROOT

PAGE = (ROOT / "docs" / "known-faults.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| report ", "| --- "))
]
THERE = frozenset(
    name
    for path in (ROOT / "tests").glob("*/**/test_*.py")
    for name in re.findall(r"^def (test_\w+)\(", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
)


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:60] for row in ROWS])
def test_a_fault_has_an_answer_and_tests_that_exist(row: list[str]) -> None:
    report, answer, tests = row
    assert report
    assert answer
    named = re.findall(r"test_\w+", tests)
    assert named
    assert set(named) <= THERE


def test_the_page_holds_every_report_once() -> None:
    assert len(ROWS) == len({row[0] for row in ROWS}) >= 40
