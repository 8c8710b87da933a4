"""Adapters for the executor: single updates (set node-qos)."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from conformance.adapters.nodeqos_cgroups import FilesOnly
from conformance.outcome import expect
from conformance.registry import suite
from kubetide.errors import KubetideError
from kubetide.node.core import files
from kubetide.node.core.layout import Layout
from kubetide.node.core.plan import Target, Write
from kubetide.node.executor.kernel_writer import Executor

Case = dict[str, Any]


class Frozen:
    """A clock that stands still."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0


def executor(version: int, file: files.CgroupFile, directory: str, case: Case) -> tuple[Executor, FilesOnly, str]:
    layout = Layout(version=version, cgroup_root="/cg")
    path = layout.cgroup_file(file, directory)
    contents = {path: case["initial"]} if case["fileExists"] else {}
    # Support is looked up in the (kube) root for some files; the golden data assumes that the kernel has them all.
    for place in (layout.paths.kube_root, ""):
        contents.setdefault(layout.cgroup_file(file, place), "")
    host = FilesOnly(contents)
    return Executor(host, layout, Frozen()), host, path


def registered(resource: str) -> files.CgroupFile:
    """Return the file of a resource; one that is not in the table is refused when an update is made."""
    if resource not in files.CGROUP_FILES:
        raise KubetideError(f"{resource!r} is not a kernel file")
    return files.CGROUP_FILES[resource]


@suite("node-qos/cgroup_updater")
def cgroup_updater(case: Case) -> Iterable[str]:
    given = case["input"]
    content, failed = "", False
    try:
        file = registered(given["resource"])
        made, host, path = executor(given["cgroupVersion"], file, given["parentDir"], given)
        made.write_through(Write(file=file, value=given["value"], directory=given["parentDir"], target=Target.TIER))
        content = host.contents.get(path, "")
    except KubetideError:
        failed = True  # and nothing was written, which the golden data shows as empty text
    yield from expect(case, {"error": failed, "fileContent": content})


@suite("node-qos/executor_update")
def executor_update(case: Case) -> Iterable[str]:
    given = case["input"]
    failed, updated = False, not given["cacheable"]
    try:
        file = registered(given["resource"])
        made, _, _ = executor(1, file, "test", given)
        if given["executorStarted"]:
            made.start()
        write = Write(file=file, value=given["value"], directory="test", target=Target.TIER)
        outcome = made.update(write, cached=given["cacheable"])
        failed = outcome.failed
        # In the data an update past the cache counts as made whether or not the file is there.
        updated = not failed and (outcome.in_force or not given["cacheable"])
    except KubetideError:
        failed = True
    yield from expect(case, {"updated": updated, "error": failed})
