"""SIGTERM that lets a command clear away what it made."""

import os
import signal
import tempfile
from pathlib import Path

import pytest
from clockgate_trainer.interrupt import sigterm_interrupts


def test_sigterm_ends_like_an_interrupt_and_clears_away(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), sigterm_interrupts(), tempfile.TemporaryDirectory(dir=tmp_path):
        os.kill(os.getpid(), signal.SIGTERM)
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before
