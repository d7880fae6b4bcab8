import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from clockgated.errors import SocketError
from clockgated.service import sockets
from support.daemon import environment


def listen(path: str) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(path)
    server.listen()
    return server


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_open_socket_is_for_everybody_from_the_moment_it_exists(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        claim = sockets.claim(tmp_path / "new/a.sock", private=False)
        held: list[socket.socket] = []
        claim.bind(lambda path: held.append(listen(path)))
        assert mode(tmp_path / "new/a.sock") == 0o666
        assert mode(tmp_path / "new") == 0o755
    finally:
        os.umask(before)
    assert os.umask(before) == before, "bind must give the process its umask back"
    held[0].close()
    claim.release()


def test_private_socket_lies_in_a_private_folder(tmp_path: Path) -> None:
    claim = sockets.claim(tmp_path / "run/admin/a.sock", private=True)
    held: list[socket.socket] = []
    claim.bind(lambda path: held.append(listen(path)))
    assert mode(tmp_path / "run/admin") == 0o700
    assert mode(tmp_path / "run/admin/a.sock") == 0o600
    held[0].close()
    claim.release()


def test_private_folder_that_lets_others_in_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "admin"
    folder.mkdir(mode=0o755)
    with pytest.raises(SocketError, match=r"admin: mode 0755 lets others in; wanted 0700.*run `chmod 0700 "):
        sockets.claim(folder / "a.sock", private=True)


def test_umask_is_restored_when_binding_fails(tmp_path: Path) -> None:
    before = os.umask(0o022)
    claim = sockets.claim(tmp_path / "a.sock", private=False)

    def fail(path: str) -> None:
        raise RuntimeError(f"no luck with {path}")

    try:
        with pytest.raises(SocketError, match="cannot be served: no luck"):
            claim.bind(fail)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
        claim.release()


def test_path_longer_than_the_kernel_takes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 107)
    with pytest.raises(SocketError, match=r"\d+ bytes long; a unix socket's path has at most 107"):
        sockets.claim(path, private=False)


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_anything_but_a_socket_in_the_way_is_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.sock"
    if kind == "folder":
        path.mkdir()
    elif kind == "file":
        path.write_text("precious")
    else:
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SocketError, match=r"a\.sock: a (folder|file that is no socket|link) is in the way; move it"):
        sockets.claim(path, private=False)
    assert os.path.lexists(path)


def test_stale_socket_is_removed(tmp_path: Path) -> None:
    listen(str(tmp_path / "a.sock")).close()
    assert (tmp_path / "a.sock").is_socket()
    claim = sockets.claim(tmp_path / "a.sock", private=False)
    assert not (tmp_path / "a.sock").exists()
    claim.release()


def test_socket_of_another_live_program_is_left_alone(tmp_path: Path) -> None:
    with (
        listen(str(tmp_path / "a.sock")),
        pytest.raises(SocketError, match=r"a\.sock: another program serves it; stop that one, or choose another path"),
    ):
        sockets.claim(tmp_path / "a.sock", private=False)
    assert (tmp_path / "a.sock").is_socket()


def test_socket_with_a_full_queue_counts_as_served(tmp_path: Path) -> None:
    with listen(str(tmp_path / "a.sock")) as server:
        server.listen(0)
        clients = []
        for _ in range(3):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.setblocking(False)
            clients.append(client)
            client.connect_ex(str(tmp_path / "a.sock"))
        with pytest.raises(SocketError, match="another program serves it"):
            sockets.claim(tmp_path / "a.sock", private=False)
        for client in clients:
            client.close()


def test_second_claim_names_the_process_that_holds_the_first(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from clockgated.service import sockets\n"
        "claim = sockets.claim(Path(sys.argv[1]), private=False); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "a.sock")],
        env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(SocketError, match=rf"another clockgated serves it \(process {holder.pid}\); stop that one"):
            sockets.claim(tmp_path / "a.sock", private=False)
        holder.kill()
        holder.wait(10)
    sockets.claim(tmp_path / "a.sock", private=False).release()


def test_claim_is_free_again_after_release_and_after_a_refusal(tmp_path: Path) -> None:
    sockets.claim(tmp_path / "a.sock", private=False).release()
    (tmp_path / "a.sock").mkdir()
    with pytest.raises(SocketError, match="a folder is in the way"):
        sockets.claim(tmp_path / "a.sock", private=False)
    (tmp_path / "a.sock").rmdir()
    sockets.claim(tmp_path / "a.sock", private=False).release()


def test_folder_that_cannot_be_written_is_named() -> None:
    with pytest.raises(SocketError, match=r"/proc/self.*; wanted a folder that clockgated may write"):
        sockets.claim(Path("/proc/self/a.sock"), private=False)


def test_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SocketError, match=r"file: something that is no folder is in the way"):
        sockets.claim(tmp_path / "file/a.sock", private=False)


def test_lock_is_never_taken_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("data")
    (tmp_path / "a.sock.lock").symlink_to(target)
    with pytest.raises(SocketError, match=r"a\.sock\.lock: cannot be opened"):
        sockets.claim(tmp_path / "a.sock", private=False)
    assert target.read_text() == "data"


def test_nobody_else_can_open_the_lock_of_the_open_socket(tmp_path: Path) -> None:
    lock = tmp_path / "a.sock.lock"
    lock.touch(0o644)
    claim = sockets.claim(tmp_path / "a.sock", private=False)
    try:
        assert lock.stat().st_mode & 0o777 == 0o600
    finally:
        claim.release()
