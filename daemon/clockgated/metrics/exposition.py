"""Numbers as Prometheus reads them, written by its own library. Raises ImportError where that is not installed."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from clockgated.metrics.compose_clock import clock_numbers
from clockgated.metrics.compose_node import node_numbers
from clockgated.metrics.family import Kind, Numbers
from clockgated.metrics.snapshot import Snapshot

_MOST_PAGES = 4
_LEAST_AGE_S = 0.5
"""A page is given out again for that long: any number of scrapers costs no more than two pages a second."""


class Exposition:
    """Writes pages from the newest snapshot; for threads."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._registry = CollectorRegistry()
        # The registry asks only for what has `collect`; nothing of the process's default registry is in it.
        self._registry.register(self)
        self._lock = threading.Lock()
        self._pages: dict[str, tuple[float, bytes]] = {}

    def collect(self) -> Iterator[Metric]:
        """Every family, for the library."""
        seen = self._snapshot()
        for numbers in (*clock_numbers(seen), *node_numbers(seen)):
            yield _metric(numbers)

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not make a page."""
        return ()

    def page(self, accept: str) -> tuple[str, bytes]:
        """Content type and page for an Accept header: the plain text format, or OpenMetrics where it is asked for."""
        encode, content_type = choose_encoder(accept)
        with self._lock:
            made_s, page = self._pages.get(content_type, (-_LEAST_AGE_S, b""))
            if time.monotonic() - made_s > _LEAST_AGE_S or not page:
                page = encode(self._registry)
                # There are few content types; what clients ask for must not make many.
                kept = self._pages if len(self._pages) < _MOST_PAGES else {}
                self._pages = {**kept, content_type: (time.monotonic(), page)}
            return content_type, page


def _metric(numbers: Numbers) -> Metric:
    family = numbers.family
    if numbers.buckets is not None:
        edges = [(f"{edge:g}", float(count)) for edge, count in numbers.buckets.upto]
        edges.append(("+Inf", float(numbers.buckets.count)))
        histogram = HistogramMetricFamily(family.name, family.help)
        histogram.add_metric([], buckets=edges, sum_value=numbers.buckets.sum)
        return histogram
    kind = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in numbers.samples:
        metric.add_metric([_text(label) for label in labels], value)
    return metric


def _text(label: str) -> str:
    """Without lone surrogates, which odd bytes of other programs become and UTF-8 does not have."""
    return label.encode(errors="replace").decode()
