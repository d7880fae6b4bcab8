"""The chaos suite as a program: scenarios over a few conductors, progress for a person, figures for the docs."""

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue

from support.chaos.conduct import Conductor
from support.chaos.disk import own_mounts
from support.chaos.named import named
from support.chaos.report import Conditions, Line, rewrite
from support.chaos.scenario import Scenario
from support.chaos.seeds import seeded
from support.chaos.verdict import Truth, problems
from support.chaos.warm import Warm
from support.tools import find_tool, lacking_for_namespaces

_CI_SEEDS = 20
_CONDUCTORS = 3


@dataclass(frozen=True)
class Result:
    """One scenario, how its ranks ended, and what can be said against it."""

    scenario: Scenario
    codes: tuple[int | None, ...]
    resumed: bool
    seconds: float
    problems: tuple[str, ...]


def main(argv: Sequence[str]) -> int:
    """See the package's __main__."""
    options = _parser().parse_args(argv)
    absent = [name for name in ("setpriv", "chronyd", "chronyc") if find_tool(name) is None]
    lacking = lacking_for_namespaces() or (f"needs {', '.join(absent)}: make tools" if absent else None)
    if lacking is not None:
        print(f"cluster: {lacking}", file=sys.stderr)
        return 1
    scenarios = _chosen(options)
    if not scenarios:
        print(f"cluster: no fault has {options.fault!r} in its name; --list shows them", file=sys.stderr)
        return 2
    if options.list or len(scenarios) == 1:
        print("\n".join(one.describe() for one in scenarios))
    if options.list:
        return 0
    own_mounts()
    began = time.monotonic()
    results = run_all(scenarios, conductors=options.conductors, keep=options.keep)
    seconds = time.monotonic() - began
    failed = [result for result in results if result.problems]
    if options.json:
        print(json.dumps([_plain(result) for result in results], indent=2))
    print(f"cluster: {len(results) - len(failed)} of {len(results)} ended as they must, in {seconds:.0f} s")
    if options.write is not None:
        lines = [Line(result.scenario, result.codes, result.resumed, result.problems) for result in results]
        cores = len(os.sched_getaffinity(0))
        rewrite(options.write, lines, Conditions(time.strftime("%Y-%m-%d"), cores, seconds, version("torch")))
    return 1 if failed else 0


def run_all(scenarios: Sequence[Scenario], *, conductors: int = _CONDUCTORS, keep: Path | None = None) -> list[Result]:
    """Run every scenario; several at a time, since most of their time is waiting. `keep` is where files stay."""
    folder = Path(tempfile.mkdtemp(prefix="cg-", dir="/tmp"))  # sockets need a short path
    try:
        with Warm() as warm:
            team = [Conductor(warm, folder / f"c{number}", number) for number in range(min(conductors, len(scenarios)))]
            try:
                truths = {ranks: team[0].truth(ranks) for ranks in sorted({one.ranks for one in scenarios})}
                return _share_out(scenarios, team, truths)
            finally:
                for conductor in team:
                    conductor.close()
    finally:
        if keep is not None:
            shutil.copytree(folder, keep, dirs_exist_ok=True, ignore=shutil.ignore_patterns("s", "a", "*.sock"))
        shutil.rmtree(folder, ignore_errors=True)


def _share_out(scenarios: Sequence[Scenario], team: Sequence[Conductor], truths: dict[int, Truth]) -> list[Result]:
    free: SimpleQueue[Conductor] = SimpleQueue()
    for conductor in team:
        free.put(conductor)
    telling = threading.Lock()
    done = 0

    def perform(scenario: Scenario) -> Result:
        nonlocal done
        conductor = free.get()
        try:
            record = conductor.perform(scenario)
        finally:
            free.put(conductor)
        found = problems(record, truths[scenario.ranks])
        result = Result(scenario, record.first.codes, record.resumed is not None, record.seconds, found)
        with telling:
            done += 1
            _tell(result, done, len(scenarios))
        return result

    with ThreadPoolExecutor(len(team)) as pool:
        return list(pool.map(perform, scenarios))


def _tell(result: Result, done: int, total: int) -> None:
    codes = " ".join("hung" if code is None else str(code) for code in result.codes)
    verdict = "ok    " if not result.problems else "FAILED"
    again = ", resumed" if result.resumed else ""
    print(f"[{done}/{total}] {verdict} {result.seconds:5.1f} s  {result.scenario.name}: {codes}{again}", flush=True)
    if result.problems:
        for line in (*result.problems, *result.scenario.describe().splitlines()):
            print(f"    {line}", flush=True)


def _chosen(options: argparse.Namespace) -> list[Scenario]:
    if options.fault is not None:
        return [one for one in named() if options.fault in one.name]
    if options.seed is not None:
        return [seeded(options.seed)]
    if options.seeds is not None:
        first, _, end = options.seeds.partition(":")
        return [seeded(seed) for seed in range(int(first), int(end))]
    return [*named(), *(seeded(seed) for seed in range(_CI_SEEDS))]


def _plain(result: Result) -> dict[str, object]:
    return {
        "name": result.scenario.name,
        "codes": result.codes,
        "resumed": result.resumed,
        "seconds": round(result.seconds, 1),
        "problems": result.problems,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make cluster", description="Runs training under faults on purpose.")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--fault", metavar="NAME", help="only named faults with this in their name")
    which.add_argument("--seed", type=int, metavar="N", help="only the combination of this seed")
    which.add_argument("--seeds", metavar="FIRST:END", help="only the combinations of these seeds")
    parser.add_argument("--conductors", type=int, default=_CONDUCTORS, metavar="N", help="scenarios at a time")
    parser.add_argument("--list", action="store_true", help="print what would be done, and do nothing")
    parser.add_argument("--json", action="store_true", help="print the results for scripts at the end")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the figures into the marked part of FILE")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="copy logs and checkpoints there at the end")
    return parser
