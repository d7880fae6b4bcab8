"""How true and how tight the bound is: simulated nodes, audited at every moment against their true error.

    bench/bound_simulation.py [--runs N] [--cycles N] [--jobs N] [SCENARIO ...]

Prints a line a scenario, then every kind of violation that was found; the exit code is 1 when there was any. The
defaults make more than a million cycles. A run can be repeated alone by its name and seed.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import median

from support.simulation.audit import Tally
from support.simulation.node import simulate
from support.simulation.parameters import SCENARIOS

_HEAD = (
    f"{'scenario':20} {'cycles':>9} {'usable':>7} {'looks':>10} {'outside':>8} {'held':>6} {'worst':>6} "
    f"{'bound us':>9} {'error us':>9} {'ratio':>7}"
)


def main() -> int:
    """Run, print, and say by the exit code whether all was inside."""
    options = _parser().parse_args()
    unknown = [name for name in options.scenario if name not in SCENARIOS]
    if unknown:
        print(f"unknown scenario {unknown[0]}; known: {', '.join(SCENARIOS)}", file=sys.stderr)
        return 2
    began_s = time.monotonic()
    total = Tally()
    print(_HEAD)
    for name, tally in _tallies(options.scenario or list(SCENARIOS), options.runs, options.cycles, options.jobs):
        print(_line(name, tally), flush=True)
        for violation in tally.shown:
            print(f"    {violation}")
        total.add(tally)
    print(_line("all", total))
    print(
        f"{total.cycles} cycles, {len(total.bounds_ns)} of them usable, {total.samples} looks at a bound in use, "
        f"{total.violations + total.held_violations} of them outside, {total.after_step} more after a stranger's step "
        f"that no reading could know; {time.monotonic() - began_s:.0f} s"
    )
    return 1 if total.violations or total.held_violations else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="the published bound against the true error of simulated nodes")
    parser.add_argument("scenario", nargs="*", help="default: all")
    parser.add_argument("--runs", type=int, default=20, help="seeds per scenario, from 0 (default 20)")
    parser.add_argument("--cycles", type=int, default=3000, help="cycles of the daemon a run (default 3000)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    return parser


def _tallies(names: Sequence[str], runs: int, cycles: int, jobs: int) -> Iterator[tuple[str, Tally]]:
    with ProcessPoolExecutor(jobs) as pool:
        pending = {name: [pool.submit(simulate, name, seed, cycles) for seed in range(runs)] for name in names}
        for name, futures in pending.items():
            tally = Tally()
            for future in futures:
                tally.add(future.result())
            yield name, tally


def _line(name: str, tally: Tally) -> str:
    bound_us = median(tally.bounds_ns) / 1e3 if tally.bounds_ns else float("nan")
    error_us = median(tally.errors_ns) / 1e3 if tally.errors_ns else float("nan")
    usable = len(tally.bounds_ns) / max(1, tally.cycles)
    return (
        f"{name:20} {tally.cycles:9} {usable:7.1%} {tally.samples:10} {tally.violations:8} {tally.held_violations:6} "
        f"{tally.worst_share:6.3f} {bound_us:9.1f} {error_us:9.2f} {bound_us / error_us:7.1f}"
    )


if __name__ == "__main__":
    sys.exit(main())
