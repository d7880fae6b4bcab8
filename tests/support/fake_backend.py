"""A backend of the supervisor that only remembers, and whose programs a test starts and ends."""

from dataclasses import replace

from clockgated.supervise.base import ChildSpec, ChildStatus


class FakeBackend:
    """Programs run from the first poll after `start` on, and end at the first after `stop`, unless `is_slow`."""

    def __init__(self, *leftovers: str) -> None:
        self.specs: dict[str, ChildSpec | None] = dict.fromkeys(leftovers)
        self.statuses = {name: ChildStatus(name, 1, 1, running=True, since_mono_ns=0) for name in leftovers}
        self.stopped: list[str] = []
        self.may_step: dict[str, bool] = {}
        self.is_slow = False
        self.is_closed = False

    def start(self, spec: ChildSpec, *, may_step: bool) -> None:
        """See Backend."""
        self.specs[spec.name] = spec
        self.may_step[spec.name] = may_step

    def stop(self, name: str, grace_ns: int) -> None:
        """See Backend."""
        self.specs[name] = None
        if name not in self.stopped:
            self.stopped.append(name)

    def restart(self, name: str, why: str) -> None:
        """See Backend."""
        self.statuses[name] = replace(self.statuses[name], running=False, last_exit=why)

    def names(self) -> tuple[str, ...]:
        """See Backend."""
        return tuple(self.specs)

    def status(self, name: str) -> ChildStatus:
        """See Backend."""
        return self.statuses.get(name, ChildStatus(name))

    def poll(self, now_mono_ns: int) -> None:
        """See Backend."""
        for name, spec in list(self.specs.items()):
            if spec is not None:
                pid = 1000 + len(self.statuses)
                run = ChildStatus(name, pid, 1, running=True, since_mono_ns=now_mono_ns)
                self.statuses.setdefault(name, run)
            elif name in self.stopped and not self.is_slow:
                del self.specs[name]
                self.statuses.pop(name, None)

    def close(self) -> None:
        """See Backend."""
        self.is_closed = True
