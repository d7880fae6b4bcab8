"""Everything of the machine around the clock that runs in this daemon: the thread that looks, and what it found."""

from clockgated.config import Config, NodeConfig
from clockgated.node.board import NodeBoard
from clockgated.node.extras import look_extras
from clockgated.node.watch import NodeWatch, host_parts
from clockgated.tuning.roots import Roots


class NodeRoom:
    """Begins with `start`; `follow` tells it of each configuration that is put in force. `board` has the findings."""

    def __init__(self, settings: Config, boot_id: str) -> None:
        self.board = NodeBoard(boot_id)
        self._settings = settings
        folders = (settings.folders.state, settings.folders.run)
        parts = host_parts(self._in_force, folders, lambda: look_extras(Roots(), self._settings.tuning.peers))
        self._watch = NodeWatch(settings.node, parts, self.board)

    def start(self) -> None:
        """Begin to look."""
        self._watch.start()

    def follow(self, settings: Config) -> None:
        """Take other settings into use."""
        self._settings = settings
        self._watch.reconfigure(settings.node)

    def stop(self) -> None:
        """End the thread after the look in hand; does not wait."""
        self._watch.stop()
        self.board.close()

    def _in_force(self) -> NodeConfig:
        return self._settings.node
