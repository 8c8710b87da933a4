"""The disks of simulated nodes: who waits for them, as the kernel counts it in its pressure files.

A container that reads and writes `want` bytes per second waits for

    stalled = want / room        at most all the time
    room    = the disk's speed less what others on the node want, within its part of any `io.max` above it

so a lonely reader of a fast disk waits little, and one whose disk or limit cannot give what it wants waits always.
Most containers declare no disk I/O; only those that do are counted here.
"""

from dataclasses import dataclass, field

from kubetide.embedded.sim.node.groups import CGroup
from kubetide.stats.powers import exponential_of

DISK_BYTES = 200.0 * 2**20
"""What the disk of a node reads and writes in a second, unless said otherwise."""
_WINDOWS = (10.0, 60.0, 300.0)
_LIMIT_FILES = ("io.max", "blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device")


@dataclass(slots=True)
class _User:
    group: CGroup
    machine: int
    want: float = 0.0
    stall: float = 0.0
    averages: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    stalled_seconds: float = 0.0


class Disks:
    """Every container that uses a disk, by its row in the kernel."""

    def __init__(self) -> None:
        self._users: dict[int, _User] = {}
        self._speeds: dict[int, float] = {}

    def __bool__(self) -> bool:
        return bool(self._users)

    def set_speed(self, machine: int, bytes_per_second: float) -> None:
        """Set how fast the disk of a machine is."""
        self._speeds[machine] = bytes_per_second

    def want(self, row: int, group: CGroup, machine: int, bytes_per_second: float) -> None:
        """Set what a container wants to read and write from now on."""
        user = self._users.get(row)
        if user is None:
            if not bytes_per_second:
                return
            user = self._users[row] = _User(group, machine)
        user.want = bytes_per_second

    def forget(self, row: int) -> None:
        """A container ended."""
        self._users.pop(row, None)

    def count(self, seconds: float) -> None:
        """Let everybody go on for a while."""
        self._settle()
        fades = exponential_of([-seconds / window for window in _WINDOWS]).tolist()
        for user in self._users.values():
            user.stalled_seconds += user.stall * seconds
            user.averages = [
                user.stall + (average - user.stall) * fade for average, fade in zip(user.averages, fades, strict=True)
            ]

    def _settle(self) -> None:
        wanted: dict[int, float] = {}
        below: dict[CGroup, float] = {}
        for user in self._users.values():
            wanted[user.machine] = wanted.get(user.machine, 0.0) + user.want
            for group in _up(user.group):
                below[group] = below.get(group, 0.0) + user.want
        for user in self._users.values():
            if not user.want:
                user.stall = 0.0
                continue
            others = wanted[user.machine] - user.want
            room = self._speeds.get(user.machine, DISK_BYTES) - others
            for group in _up(user.group):
                limit = limit_of(group)
                if limit is not None:
                    room = min(room, limit * user.want / below[group])
            user.stall = 1.0 if room <= user.want else user.want / room

    def pressure_of(self, rows: list[int]) -> tuple[float, float, float, float]:
        """Pressure averages (0 to 1) over 10, 60 and 300 s and the stalled seconds: the worst of some rows."""
        users = [self._users[row] for row in rows if row in self._users]
        if not users:
            return 0.0, 0.0, 0.0, 0.0
        ten, minute, five = (max(user.averages[window] for user in users) for window in range(3))
        return ten, minute, five, max(user.stalled_seconds for user in users)


def _up(group: CGroup) -> list[CGroup]:
    found = []
    above: CGroup | None = group
    while above is not None:
        found.append(above)
        above = above.parent
    return found


def limit_of(group: CGroup) -> float | None:
    """Return the bytes per second that a group may read and write, half of them each; None without a limit."""
    rates: list[float] = []
    for name in _LIMIT_FILES:
        for word in group.extra.get(name, "").split():
            key, equals, value = word.partition("=")
            if equals and key in ("rbps", "wbps") and value.isdigit():
                rates.append(float(value))
            elif not equals and name != "io.max" and word.isdigit() and int(word):
                rates.append(float(word))
    return 2 * min(rates) if rates else None
