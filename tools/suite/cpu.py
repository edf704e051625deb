"""CPU seconds of this process and all its descendants, including daemons and killed processes.

A control group of its own counts them, where one may be made (root; version 1 or 2); elsewhere the
kernel's count of children that were waited for is used. Meters nest: a group lies below the group
that its process was in.
"""

from __future__ import annotations

import contextlib
import resource
import tempfile
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


class CpuMeter:
    def __init__(self) -> None:
        self._group: Path | None = None
        self._before: Path | None = None  # the group that this process was in
        for controller, folder in own_groups().items():
            usage = folder / ("cpuacct.usage" if controller == "cpuacct" else "cpu.stat")
            if not usage.is_file():
                continue
            with contextlib.suppress(OSError):
                # A process id would not do: in worlds of their own, several processes have the
                # same.
                group = Path(tempfile.mkdtemp(prefix="pawl-test-", dir=folder))
                (group / "cgroup.procs").write_text("0")
                self._group, self._before, self._file = group, folder, group / usage.name
                return

    def seconds(self) -> float:
        if self._group is None:
            kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
            return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, kinds))
        text = self._file.read_text()
        if self._file.name == "cpuacct.usage":
            return int(text) / 1e9
        return int(dict(map(str.split, text.splitlines()))["usage_usec"]) / 1e6

    def close(self) -> None:
        """Leaves the group, and removes it if no process is in it any more."""
        if self._group is not None and self._before is not None:
            with contextlib.suppress(OSError):
                (self._before / "cgroup.procs").write_text("0")
                self._group.rmdir()


def own_groups() -> dict[str, Path]:
    """Returns the folders of the control groups that this process is in: that of version 1 which
    counts CPU time, then that of version 2 (as ""), if they are mounted."""
    found = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "cpuacct" in controllers.split(","):
                for name in ("cpuacct", "cpu,cpuacct"):
                    if (CGROUPS / name).is_dir():
                        found["cpuacct"] = CGROUPS / name / path.lstrip("/")
                        break
            elif not controllers and (CGROUPS / "cgroup.controllers").is_file():
                found[""] = CGROUPS / path.lstrip("/")
    return dict(sorted(found.items(), reverse=True))
