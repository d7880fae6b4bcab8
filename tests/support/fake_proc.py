"""A /proc of invented processes."""

from pathlib import Path

CAP_SYS_TIME = 1 << 25


def add_process(
    proc: Path,
    pid: int,
    name: str,
    *words: str,
    capabilities: int = CAP_SYS_TIME,
    parent: int = 1,
    start_ticks: int = 1000,
) -> None:
    """Add a process that was started as `words`, by default as its own name."""
    folder = proc / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "cmdline").write_bytes("".join(f"{word}\0" for word in (words or (name,))).encode())
    (folder / "status").write_text(f"Name:\t{name}\nPPid:\t{parent}\nCapEff:\t{capabilities:016x}\n")
    (folder / "stat").write_text(f"{pid} (a ) b) S {parent} " + "0 " * 17 + f"{start_ticks} 0 0\n")
