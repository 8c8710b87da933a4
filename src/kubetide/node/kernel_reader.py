"""Reads kernel values for decisions: everything that one of them needs, in one pass, before it runs.

A cgroup that went away, a file that this kernel does not have, text that is invalid: none of it stops the
pass. The value is left out and its reason noted, and the decision sees that it is absent.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import TypeVar

from kubetide.api.qos.cgroups import join
from kubetide.api.values.cpuset import CpuSet
from kubetide.errors import InvalidInput
from kubetide.node.core import files
from kubetide.node.core.files import CgroupFile
from kubetide.node.core.formats import cpu
from kubetide.node.core.formats.numbers import limit
from kubetide.node.core.kernel_values import KernelValues, Needs, named
from kubetide.node.core.layout import Layout
from kubetide.node.host.protocol import Host, is_gone
from kubetide.node.host.readers import PathCache

Value = TypeVar("Value")


_cpu_set = lru_cache(maxsize=1024)(CpuSet.parse)
"""Containers of a class mostly have the same CPUs, and many the same quota."""
_quota_v1 = lru_cache(maxsize=1024)(partial(limit, what="quota"))
_quota_v2 = lru_cache(maxsize=1024)(cpu.quota_v2)


class KernelReader:
    """Reads what is needed from one host."""

    def __init__(self, host: Host, layout: Layout) -> None:
        self._host = host
        self._layout = layout
        self._cpus = files.CPUSET if layout.version == 1 else files.CPUSET_EFFECTIVE
        self._quota = _quota_v1 if layout.version == 1 else _quota_v2
        self._paths = PathCache(layout)

    def read(self, needs: Needs) -> KernelValues:
        """Return the values that are needed and can be read."""
        problems: dict[str, str] = {}
        children: dict[str, tuple[str, ...]] = {}
        for directory in needs.children:
            self._list("cpuset", directory, children, problems)
        for directory in needs.trees:
            if self._list("cpuset", directory, children, problems):
                for name in children[directory]:
                    self._list("cpuset", join(directory, name), children, problems)
        inside = [
            join(directory, name, inner)
            for directory in needs.cpus_inside
            for name in children.get(directory, ())
            for inner in children.get(join(directory, name), ())
        ]
        places = list(needs.texts)
        for file, directory in needs.texts_below:
            if directory in children or self._list(file.controller, directory, children, problems):
                places += ((file, join(directory, name)) for name in children[directory])
        texts = {
            (file.name, directory): text
            for file, directory in places
            if (text := self._value(file, directory, str, problems)) is not None
        }
        settings: dict[str, str] = {}
        for setting in needs.settings:
            path = self._layout.system_file(setting)
            if setting.optional and not self._host.exists(path):
                problems[named(setting)] = f"this kernel has no {path}"
                continue
            try:
                settings[setting.path] = self._host.read(path).strip("\n")
            except OSError as error:
                problems[named(setting)] = str(error)
        return KernelValues(
            quotas=self._values(files.CPU_QUOTA, needs.quotas, self._quota, problems),
            cpus=self._values(self._cpus, (*needs.cpus, *inside), _cpu_set, problems, told_as=files.CPUSET),
            children=children,
            texts=texts,
            present={
                (file.name, directory): known
                for file, directory in needs.present
                if (known := self._present(file, directory)) is not None
            },
            settings=settings,
            problems=problems,
        )

    def _values(
        self,
        file: CgroupFile,
        directories: Iterable[str],
        parse: Callable[[str], Value],
        problems: dict[str, str],
        *,
        told_as: CgroupFile | None = None,
    ) -> dict[str, Value]:
        return {
            directory: value
            for directory in directories
            if (value := self._value(file, directory, parse, problems, told_as=told_as)) is not None
        }

    def _value(
        self,
        file: CgroupFile,
        directory: str,
        parse: Callable[[str], Value],
        problems: dict[str, str],
        *,
        told_as: CgroupFile | None = None,
    ) -> Value | None:
        try:
            return parse(self._host.read(self._paths.path(file, directory)).strip("\n"))
        except (OSError, InvalidInput) as error:
            problems[named(told_as or file, directory)] = str(error)
            return None

    def _list(
        self, controller: str, directory: str, children: dict[str, tuple[str, ...]], problems: dict[str, str]
    ) -> bool:
        try:
            children[directory] = tuple(sorted(self._host.list_dirs(self._layout.cgroup_dir(controller, directory))))
        except (OSError, InvalidInput) as error:
            if not (isinstance(error, OSError) and is_gone(error)):
                problems[f"{directory}/"] = str(error)
                return False
            children[directory] = ()  # it ended in this moment, or the kubelet has not made it yet
        return True

    def _present(self, file: CgroupFile, directory: str) -> bool | None:
        """Return whether a file exists; None where its cgroup does not."""
        try:
            if self._host.exists(self._paths.path(file, directory)):
                return True
            return False if self._host.exists(self._layout.cgroup_dir(file.controller, directory)) else None
        except InvalidInput:  # no such file on this cgroup version
            return False
