"""Knobs that are files: below /proc/sys, below /sys, and the affinity of interrupts. See `hand` for the manners."""

import errno
import os
from pathlib import Path

from clockgated.tuning.model import Area, Knob, normal
from clockgated.tuning.outcome import Trouble, TroubleCode
from clockgated.tuning.roots import Roots, names_in

_MOST_BYTES = 65536
_CODES = {
    errno.ENOENT: TroubleCode.GONE,
    errno.ENODEV: TroubleCode.GONE,
    errno.ENOTDIR: TroubleCode.GONE,
    errno.EACCES: TroubleCode.READ_ONLY,
    errno.EPERM: TroubleCode.READ_ONLY,
    errno.EROFS: TroubleCode.READ_ONLY,
    errno.EOPNOTSUPP: TroubleCode.UNSUPPORTED,
    errno.ENOSYS: TroubleCode.UNSUPPORTED,
}


class FileHand:
    """See `hand.Hand`. Files are opened anew each time: a link or an interrupt may have come or gone."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots

    def read(self, knob: Knob) -> str | Trouble:
        """What the file holds. Some files answer with an error although they can be opened: a link that is down."""
        path = self._path(knob)
        if isinstance(path, Trouble):
            return path
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return normal(os.read(descriptor, _MOST_BYTES).decode(errors="replace"))
            finally:
                os.close(descriptor)
        except OSError as error:
            return trouble_of(error, str(path))

    def write(self, knob: Knob, value: str) -> Trouble | None:
        """Write the file by one system call; a value that is not taken whole is refused by nobody, so it is told."""
        path, data = self._path(knob), value.encode() + b"\n"
        if isinstance(path, Trouble):
            return path
        try:
            # As a shell's redirection opens it; nothing is made that is not there.
            descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
            try:
                taken = os.write(descriptor, data)
            finally:
                os.close(descriptor)
        except OSError as error:
            # A value that the kernel does not know (a congestion control without module) is ENOENT at the write.
            is_value = error.errno == errno.ENOENT and path.exists()
            return (
                Trouble(TroubleCode.UNSUPPORTED, f"{path}: no such value") if is_value else trouble_of(error, str(path))
            )
        return (
            None
            if taken == len(data)
            else Trouble(TroubleCode.FAILED, f"{path}: {taken} of {len(data)} bytes were taken")
        )

    def _path(self, knob: Knob) -> Path | Trouble:
        if knob.area is Area.IRQ:
            return self._irq_path(knob.key)
        is_sysctl = knob.area is Area.SYSCTL
        top = self._roots.proc / "sys" if is_sysctl else self._roots.sys
        path = self._roots.sysctl(knob.key) if is_sysctl else top / knob.key
        is_below = path != top and path.is_relative_to(top) and ".." not in path.parts
        if "\0" in knob.key or not is_below:
            return Trouble(TroubleCode.FAILED, f'"{knob.key[:80]}" is no path below the folder of {knob.area} knobs')
        return path

    def _irq_path(self, action: str) -> Path | Trouble:
        """By the interrupt's action name: numbers are given out anew when a driver sets up its queues again."""
        folder = self._roots.proc / "irq"
        found = [number for number in names_in(folder) if number.isdecimal() and action in names_in(folder / number)]
        if len(found) == 1:
            return folder / found[0] / "smp_affinity_list"
        if not found:
            return Trouble(TroubleCode.GONE, f'no interrupt has the action "{action}"')
        return Trouble(TroubleCode.FAILED, f'interrupts {", ".join(found)} all have the action "{action}"')


def trouble_of(error: OSError, what: str) -> Trouble:
    """The kernel's refusal about `what`."""
    code = _CODES.get(error.errno or 0, TroubleCode.FAILED)
    return Trouble(code, f"{what}: {error.strerror or error}")
