"""From a chosen mode to folders, files and processes. Pure."""

from dataclasses import replace

from clockgated.manage.facts import Facts, Tool
from clockgated.manage.feed import Group, groups_by_clock, one_group, with_feeds
from clockgated.manage.mode import Choice
from clockgated.manage.options import Rendered
from clockgated.manage.planned import (
    Folders,
    PlannedChrony,
    PlannedDaemon,
    PlannedFile,
    PlannedFolder,
    PlannedPtp,
    ReadyWhen,
    escape_instance,
)
from clockgated.manage.render_chrony import ChronyPlaces, render_chrony
from clockgated.manage.render_linuxptp import PtpPlaces, phc2sys_arguments, render_phc2sys, render_ptp4l, runs_free
from clockgated.manage.settings import ManageSettings, Mode, Role

# Messages are read by us, so they stay English and their stamps stay UTC.
_ENVIRONMENT = (("LC_ALL", "C"), ("TZ", "UTC"))

# For a daemon that was started in this boot already: the clock is right, and somebody may rely on it not stepping.
_LINUXPTP_NO_STEP = "--first_step_threshold=0"


class Assembly:
    """The pieces of one plan. Holds nothing but its arguments and what follows from them."""

    def __init__(self, settings: ManageSettings, facts: Facts, folders: Folders, choice: Choice) -> None:
        self._settings = settings
        self._facts = facts
        self._folders = folders
        self.has_chronyd = choice.mode in (Mode.NTP, Mode.PTP_NTP)
        self._chrony = ChronyPlaces(f"{folders.run}/chrony", f"{folders.state}/chrony")
        self._fixed_grandmaster = choice.mode is Mode.PTP_NTP and settings.ptp.role is Role.GRANDMASTER
        self.groups = self._grouped(choice)
        self._texts = self._render()

    def folders(self) -> tuple[PlannedFolder, ...]:
        """Folders, parents first."""
        found = [PlannedFolder(self._folders.run, 0o755), PlannedFolder(self._folders.state, 0o755)]
        if self.has_chronyd:
            owner = self._facts.chrony_user
            # chronyd refuses its command socket in a folder that others can enter; its group may, to ask it.
            found.append(PlannedFolder(self._chrony.folder, 0o770, owner))
            found.append(PlannedFolder(self._chrony.dump_folder, 0o750, owner))
            found.append(PlannedFolder(self._chrony.state, 0o750, owner))
        return tuple(found)

    def files(self) -> tuple[PlannedFile, ...]:
        """Configurations, in the order of the daemons that read them."""
        return tuple(PlannedFile(path, rendered.text) for path, rendered in self._texts.items())

    def losses(self) -> tuple[str, ...]:
        """What the installed releases cannot do."""
        return tuple(loss.detail for rendered in self._texts.values() for loss in rendered.losses)

    def sockets(self) -> tuple[str, ...]:
        """Paths that some daemon will bind."""
        found = [self._chrony.socket] if self.has_chronyd else []
        found += [self._places(group).read_only_socket for group in self.groups]
        return (*found, *self._feed_sockets())

    def segments(self) -> tuple[int, ...]:
        """Numbers of the shared-memory segments that the daemons use."""
        feeds = [group.feed for group in self.groups if group.feed is not None]
        return tuple(feed.segment for feed in feeds if feed.segment is not None)

    def chrony(self) -> PlannedChrony | None:
        """How chronyd is asked."""
        if not self.has_chronyd:
            return None
        return PlannedChrony(self._chrony.socket, self._settings.max_drift_ppm)

    def ptp(self) -> tuple[PlannedPtp, ...]:
        """How each ptp4l is asked."""
        return tuple(
            PlannedPtp(
                name=group.name,
                socket=self._places(group).socket,
                domain=self._settings.ptp.domain,
                hardware=group.hardware,
                hardware_clock=group.clocks[0] if group.hardware and len(group.clocks) == 1 else None,
                refid=group.feed.refid if group.feed is not None else None,
                steers=group.feed is None and not self._fixed_grandmaster,
                runs_free=not group.hardware and self._runs_free(group, _installed(self._facts.ptp4l)),
            )
            for group in self.groups
        )

    def daemons(self) -> tuple[PlannedDaemon, ...]:
        """In start order: chronyd makes the socket or segment that the others need, ptp4l the socket of phc2sys."""
        found = [self._chronyd()] if self.has_chronyd else []
        for group in self.groups:
            found.append(self._ptp4l(group))
            if group.hardware:
                found.append(self._phc2sys(group))
        last = len(found) - 1
        return tuple(replace(daemon, stop_order=last - index) for index, daemon in enumerate(found))

    def _runs_free(self, group: Group, tool: Tool) -> bool:
        right, fixed = self._facts.has_clock_right, self._fixed_grandmaster
        return runs_free(tool, group, has_clock_right=right, fixed=fixed)

    def _places(self, group: Group) -> PtpPlaces:
        return PtpPlaces(self._folders.run, group.name)

    @property
    def _chrony_file(self) -> str:
        return f"{self._folders.run}/chronyd.conf"

    def _grouped(self, choice: Choice) -> tuple[Group, ...]:
        if choice.mode is Mode.PTP:
            return one_group(choice.ports)
        if choice.mode is not Mode.PTP_NTP:
            return ()
        groups = groups_by_clock(choice.ports)
        if self._fixed_grandmaster:
            return groups
        first = self._settings.ptp.shm_segment
        tool = _installed(self._facts.ptp4l)
        return with_feeds(groups, tool, self._chrony.folder, first, self._facts.shm_segments)

    def _render(self) -> dict[str, Rendered]:
        found: dict[str, Rendered] = {}
        facts, ptp, fixed = self._facts, self._settings.ptp, self._fixed_grandmaster
        if self.has_chronyd:
            tool = _installed(facts.chronyd)
            found[self._chrony_file] = render_chrony(self._settings, facts, tool, self._chrony, self.groups)
        for group in self.groups:
            places = self._places(group)
            ptp4l = _installed(facts.ptp4l)
            free = self._runs_free(group, ptp4l)
            found[places.ptp4l_file] = render_ptp4l(ptp, ptp4l, group, places, fixed=fixed, free=free)
            if group.hardware:
                phc2sys = _installed(facts.phc2sys)
                free = self._runs_free(group, phc2sys)
                found[places.phc2sys_file] = render_phc2sys(ptp, phc2sys, group, places, fixed=fixed, free=free)
        return found

    def _feed_sockets(self) -> tuple[str, ...]:
        feeds = [group.feed for group in self.groups if group.feed is not None]
        return tuple(feed.socket for feed in feeds if feed.socket is not None)

    def _chronyd(self) -> PlannedDaemon:
        tool = _installed(self._facts.chronyd)
        steers = self._facts.has_clock_right
        # The system call filter is what Debian's own unit sets; elsewhere a container's libraries may not fit it.
        is_filtered = self._facts.systemd_runs and "SCFILTER" in tool.features
        options = (
            "-d",
            *(() if steers else ("-x",)),
            *(("-F", "1") if is_filtered else ()),
            "-f",
            self._chrony_file,
        )
        return PlannedDaemon(
            name="chronyd",
            argv=(tool.path, *options),
            # -r reads the measurements of the last run back, -R leaves the step at start out.
            restart_argv=(tool.path, "-r", "-R", *options),
            unit_name="clockgate-chronyd.service",
            environment=_ENVIRONMENT,
            needs_clock_right=steers,
            ready_when=ReadyWhen((self._chrony.socket, *self._feed_sockets())),
            leftovers=(self._chrony.socket, *self._feed_sockets(), self._chrony.pid_file),
        )

    def _ptp4l(self, group: Group) -> PlannedDaemon:
        places = self._places(group)
        argv = (_installed(self._facts.ptp4l).path, "-f", places.ptp4l_file)
        # Hardware clocks are steered through their device, which takes no such right; with a feed chronyd steers.
        steers = not group.hardware and group.feed is None and not self._fixed_grandmaster
        return PlannedDaemon(
            name=f"ptp4l@{group.name}",
            argv=argv,
            restart_argv=(*argv, _LINUXPTP_NO_STEP) if steers else argv,
            unit_name=f"clockgate-ptp4l@{escape_instance(group.name)}.service",
            environment=_ENVIRONMENT,
            needs_clock_right=steers and self._facts.has_clock_right,
            ready_when=ReadyWhen((places.socket,)),
            leftovers=(places.socket,),
        )

    def _phc2sys(self, group: Group) -> PlannedDaemon:
        places = self._places(group)
        clock = group.clocks[0] if len(group.clocks) == 1 else None
        arguments = phc2sys_arguments(self._settings.ptp, clock, ntp_steers=self.has_chronyd)
        argv = (_installed(self._facts.phc2sys).path, "-f", places.phc2sys_file, *arguments)
        steers = group.feed is None and not self._fixed_grandmaster
        return PlannedDaemon(
            name=f"phc2sys@{group.name}",
            argv=argv,
            restart_argv=(*argv, _LINUXPTP_NO_STEP) if steers else argv,
            unit_name=f"clockgate-phc2sys@{escape_instance(group.name)}.service",
            environment=_ENVIRONMENT,
            needs_clock_right=steers and self._facts.has_clock_right,
            ready_when=ReadyWhen(),
        )


def _installed(tool: Tool | None) -> Tool:
    """The tool, which the choice of mode has made sure of."""
    assert tool is not None
    return tool
