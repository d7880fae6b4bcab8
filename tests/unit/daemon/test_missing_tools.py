"""What decides whether a tier is skipped must not hide a missing program where nothing may be missing."""

import pytest
from support.tools import find_tool, missing, require_tool


def test_missing_program_skips_and_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOCKGATE_REQUIRE_TOOLS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-program is not on this machine"):
        require_tool("no-such-program")


def test_missing_program_fails_where_tools_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOCKGATE_REQUIRE_TOOLS", "1")
    with pytest.raises(pytest.fail.Exception, match="needs root, and CLOCKGATE_REQUIRE_TOOLS=1 forbids to skip"):
        missing("needs root")


def test_system_programs_are_found_outside_of_a_short_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert find_tool("python") is not None
