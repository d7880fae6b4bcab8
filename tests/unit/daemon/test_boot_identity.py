from pathlib import Path

from clockgated import host
from clockgated.tuning.roots import Roots

INIT, OWN = "11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000"


def a_view(folder: Path, boot_id: str) -> Path:
    file = folder / "proc/sys/kernel/random/boot_id"
    file.parent.mkdir(parents=True)
    file.write_text(f"{boot_id}\n")
    return folder


def test_the_boot_is_the_one_that_the_first_process_sees(tmp_path: Path) -> None:
    # A unit's sandbox inside a container may show the machine's identity instead of the container's.
    init, own = a_view(tmp_path / "init", INIT), a_view(tmp_path / "own", OWN)
    assert host.boot_id(init, own) == INIT


def test_who_may_not_look_there_takes_what_it_sees_itself(tmp_path: Path) -> None:
    assert host.boot_id(tmp_path / "none", a_view(tmp_path / "own", OWN)) == OWN


def test_tuning_and_clock_agree_on_the_boot(tmp_path: Path) -> None:
    assert Roots().boot_id == host.boot_id()
    own = a_view(tmp_path, OWN)
    assert Roots(proc=own / "proc").boot_id == OWN
    a_view(own / "proc/1/root", INIT)
    assert Roots(proc=own / "proc").boot_id == INIT
