"""Small programs that stand in for real ones at the process edge."""

from pathlib import Path


def fake_program(folder: Path, script: str, name: str = "program") -> Path:
    """A shell script at `folder/name`; it writes its process number to `folder/pid` before anything else."""
    program = folder / name
    program.write_text(f"#!/bin/sh\necho $$ >{folder / 'pid'}\n{script}\n")
    program.chmod(0o755)
    return program


def is_gone(folder: Path) -> bool:
    """Whether the program has ended and was reaped. One that was killed before its first line is gone as well."""
    pid = folder / "pid"
    return not pid.exists() or not Path("/proc", pid.read_text().strip() or "none").exists()
