import threading

import pytest
from clockgated.threads import Background


def test_a_call_runs_beside_and_gives_its_result() -> None:
    go = threading.Event()
    call = Background(lambda: (go.wait(10), threading.current_thread().name)[1])
    assert not call.wait(0.01)
    go.set()
    assert call.wait(10)
    assert call.result() == "planning"


def test_what_the_call_raises_reaches_whoever_asks() -> None:
    def fail() -> int:
        raise ValueError("no")

    call = Background(fail)
    assert call.wait(10)
    with pytest.raises(ValueError, match="no"):
        call.result()
