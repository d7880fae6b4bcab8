"""What the launcher does before torch is imported, which takes seconds."""

import signal

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def hold_back() -> None:
    """Keep signals that ask to stop until the launcher can do what they ask: by default they would end it at once, with
    no exit code of the contract. Main thread only.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
