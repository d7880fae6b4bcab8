"""Metrics as part of this daemon: where their numbers come from, and the endpoint while one is configured."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clockgated import __version__, host
from clockgated.beats import Beats
from clockgated.config import MetricsConfig
from clockgated.lease_desk import LeaseDesk
from clockgated.metrics.server import MetricsServer
from clockgated.metrics.snapshot import Snapshot, Streams
from clockgated.node.board import NodeBoard
from clockgated.publish import Publisher
from clockgated.service.tally import StreamTally
from clockgated.supervise.base import ChildStatus
from clockgated.tuning.desk import Tally

_LOG = logging.getLogger(__name__)
_PATIENCE_S = 1.5


@dataclass(frozen=True)
class MetricSources:
    """The parts of the daemon that are asked at a scrape; each answers from memory, at once."""

    publisher: Publisher
    beats: Beats
    children: Callable[[], tuple[ChildStatus, ...]]
    desk: LeaseDesk
    streams: Callable[[], Mapping[str, StreamTally]]
    tuning: Callable[[], Tally | None]
    node: NodeBoard

    def snapshot(self) -> Snapshot:
        """Everything now."""
        tally = self.tuning()
        return Snapshot(
            reading=self.publisher.latest(),
            now_boot_ns=host.boot_ns(),
            version=__version__,
            cpu_ns=time.process_time_ns(),
            beat=self.beats.latest(),
            children=self.children(),
            leases=len(self.desk.open_leases()),
            leases_limit=self.desk.limits.max_leases,
            streams={name: Streams(one.open, one.refused) for name, one in self.streams().items()},
            tuning_applied=None if tally is None else tally.applied,
            tuning_drifted=None if tally is None else tally.differing,
            node=self.node.latest(),
        )


class MetricsRoom:
    """Serves nothing until `follow`; then whatever the newest settings say, until `stop`."""

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources
        self._settings: MetricsConfig | None = None
        self._server: MetricsServer | None = None

    def follow(self, settings: MetricsConfig) -> None:
        """Serve as configured from now on."""
        if settings == self._settings:
            return
        earlier, self._settings = self._server, settings
        self.stop()
        # The address has to be free before it is served again.
        if earlier is not None:
            earlier.join(_PATIENCE_S)
        if settings.address is None:
            return
        try:
            # A library that the daemon does without where it is not installed.
            from clockgated.metrics.exposition import Exposition  # noqa: PLC0415
        except ImportError as error:
            _LOG.warning(
                'metrics: none are served: %s; install python3-prometheus-client, or set [metrics] address to ""', error
            )
            return
        self._server = MetricsServer(settings.address, Exposition(self._sources.snapshot).page)

    def stop(self) -> None:
        """Serve no more; does not wait."""
        if self._server is not None:
            self._server.close()
            self._server = None
