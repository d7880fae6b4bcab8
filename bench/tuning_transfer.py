"""One TCP transfer over a long path, with the tuning plan and without: two namespaces and a delay in user space.

Pairs of transfers are interleaved, the order within a pair alternates. "Without" are the buffers of older kernels; with
the plan both ends plan for the path and apply, as `clockgatectl tune` does, and give back afterwards. Prints each pair,
the median of the ratios with a 95 % interval (bootstrap over the pairs), and the bound that the plan printed before.
Needs root and /dev/net/tun. Touches nothing outside its own namespaces.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
ROOTS = os.pathsep.join(str(HERE.parent / name) for name in ("daemon", "protos", "bench"))
_DRAWS = 10_000


class End:
    """One end of the path: a process in its namespace that answers one JSON line per command."""

    def __init__(self, place: str, folder: Path, options: argparse.Namespace) -> None:
        line = ["ip", "netns", "exec", place, sys.executable, str(HERE / "transfer_end.py"), str(folder)]
        self._process = subprocess.Popen(
            [*line, str(options.rtt_ms)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": ROOTS},
        )  # fmt: skip

    def ask(self, command: str) -> Any:
        """Send a command and wait for its answer."""
        self.tell(command)
        return self.answer()

    def tell(self, command: str) -> None:
        """Send a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """The answer to the oldest command that has none."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "an end of the path died"
        return json.loads(line)

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


@contextmanager
def path(options: argparse.Namespace) -> Iterator[tuple[End, End]]:
    """Two ends with the delayed path between them."""
    names = [f"clockgate-{os.getpid()}-{word}" for word in ("from", "to", "between")]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clockgate-transfer-")))
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
            stack.callback(subprocess.run, ["ip", "netns", "delete", name], check=False)
        carrier = subprocess.Popen(
            ["ip", "netns", "exec", names[2], sys.executable, str(HERE / "delayed_path.py"), *names[:2],
             "--rtt-ms", str(options.rtt_ms), "--mbps", str(options.mbps)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        stack.callback(carrier.wait)
        stack.callback(carrier.kill)
        assert carrier.stdout is not None
        assert carrier.stdout.readline() == "ready\n", "the path was not made"
        ends = []
        for name in names[:2]:
            ends.append(End(name, folder / name, options))
            stack.callback(ends[-1].close)
        yield ends[0], ends[1]


def transfer(sender: End, receiver: End, size_bytes: int) -> float:
    """Send that much over one fresh connection; Mb/s from the first byte to the last acknowledgement."""
    receiver.tell(f"receive {size_bytes}")
    time.sleep(0.2)
    took_s: float = sender.ask(f"send {size_bytes}")
    assert receiver.answer() == size_bytes
    return size_bytes * 8 / took_s / 1e6


def pairs(sender: End, receiver: End, options: argparse.Namespace) -> Iterator[tuple[float, float]]:
    """Mb/s with the plan and without, pair by pair."""
    for number in range(options.pairs):
        rates = {}
        for mode in ("with", "without") if number % 2 else ("without", "with"):
            for end in (sender, receiver):
                end.ask(mode)
            rates[mode] = transfer(sender, receiver, options.mib << 20)
            for end in (sender, receiver):
                end.ask("back")
        yield rates["with"], rates["without"]


def interval(ratios: list[float], seed: int = 1) -> tuple[float, float]:
    """95 % interval of the median of `ratios`, by bootstrap."""
    draw = random.Random(seed)
    medians = sorted(median(draw.choices(ratios, k=len(ratios))) for _ in range(_DRAWS))
    return medians[round(0.025 * _DRAWS)], medians[round(0.975 * _DRAWS) - 1]


def main() -> int:
    """Measure, and print one line per pair and the outcome."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rtt-ms", type=float, default=100)
    parser.add_argument("--mbps", type=int, default=1000, help="rate of the path")
    parser.add_argument("--mib", type=int, default=64, help="size of a transfer")
    parser.add_argument("--pairs", type=int, default=10)
    options = parser.parse_args()
    with path(options) as (sender, receiver):
        told = sender.ask("plan")
        print(
            f"path: {options.mbps} Mb/s, {options.rtt_ms:g} ms; {options.mib} MiB over one connection, MTU 9000, "
            f"{told['congestion_control']}"
        )
        print(f"bound without the plan: {told['bound']}")
        for change in told["changes"]:
            print(f"plan: {change}")
        rates = []
        for with_plan, without in pairs(sender, receiver, options):
            rates.append((with_plan, without))
            print(
                f"with {with_plan:7.1f} Mb/s   without {without:7.1f} Mb/s   ratio {with_plan / without:.2f}",
                flush=True,
            )
    low, high = interval([one / other for one, other in rates])
    ratio = median(one / other for one, other in rates)
    usual_with, usual_without = median(one for one, _ in rates), median(other for _, other in rates)
    print(
        f"median: with {usual_with:.1f} Mb/s, without {usual_without:.1f} Mb/s; "
        f"ratio {ratio:.2f} (95 %: {low:.2f} to {high:.2f}, {len(rates)} interleaved pairs)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
