"""Which cgroup driver the kubelet uses, where its directories do not exist yet: its command line says.

The kubelet is the process that listens on the node's kubelet port. Its flag wins, then its configuration file, then
the default. It may not be up yet, so it is asked several times; if nobody knows, systemd is the better guess. The first
unsuccessful look says what is waited for, how long at most, and which flag makes an end of it.
"""

import asyncio
import os
from collections.abc import Iterator
from functools import partial

from kubetide.api.objects.scheme import NODES
from kubetide.api.qos.cgroups import CgroupDriver
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.log import get_logger
from kubetide.node.core.layout import Layout
from kubetide.node.host.detect import driver_by_directories, driver_by_kubelet, kubelet_config_path
from kubetide.node.host.protocol import Host
from kubetide.node.host.worker import Inline, Worker
from kubetide.node.state.kubelet import kubelet_port

log = get_logger("node.driver")

EVERY_SECONDS = 10.0
AT_MOST_SECONDS = 60.0
_LISTENING = "0A"


async def find_driver(
    client: Client, clock: Clock, host: Host, layout: Layout, node_name: str, kernel: Worker | None = None
) -> CgroupDriver:
    """Return the driver by directories, else by the kubelet's command line, else systemd."""
    kernel = kernel or Inline()
    began = clock.monotonic()
    while True:
        found = await kernel.call(partial(driver_by_directories, host, layout), "looking for the kubelet's cgroups")
        if found is not None:
            return found
        try:
            port = kubelet_port(await client.get_raw(NODES, node_name))
            asked = await kernel.call(partial(_ask_process, host, layout, port), "looking for the kubelet")
            if asked is not None:
                log.info("cgroup driver of the kubelet", driver=str(asked))
                return asked
            reason = f"no process listens on the kubelet's port {port}"
        except (KubetideError, OSError) as error:
            reason = str(error)
        waited = clock.monotonic() - began
        if waited >= AT_MOST_SECONDS:
            log.warning("cgroup driver not found out, assuming systemd", reason=reason, waited=f"{waited:.0f}s")
            return CgroupDriver.SYSTEMD
        log.info(
            "waiting for the kubelet, to learn its cgroup driver; --cgroup-driver makes this unnecessary",
            cgroups=layout.cgroup_dir("cpu", ""),
            reason=reason,
            waited=f"{waited:.0f}s",
            at_most=f"{AT_MOST_SECONDS:.0f}s",
        )
        await asyncio.sleep(EVERY_SECONDS)


def _ask_process(host: Host, layout: Layout, port: int) -> CgroupDriver | None:
    process = process_on_port(host, layout, port)
    if process is None:
        return None
    command = [word for word in host.read(layout.proc(process, "cmdline")).split("\0") if word]
    path = kubelet_config_path(command, os.path.realpath(layout.proc(process, "cwd")))
    config = host.read(layout.proc(process, "root") + path) if path is not None else None
    return driver_by_kubelet(command, config)


def process_on_port(host: Host, layout: Layout, port: int) -> str | None:
    """Return the id of the process that listens on a TCP port; IPv6 is looked at first."""
    for table in ("net/tcp6", "net/tcp"):
        try:
            wanted = set(listening(host.read(layout.proc(table)), port))
        except OSError:
            continue
        if wanted:
            for process in host.list_dirs(layout.proc_root):
                if process.isdigit() and wanted & set(_sockets(layout.proc(process, "fd"))):
                    return process
    return None


def listening(table: str, port: int) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on a port, from a table of /proc/net."""
    for line in table.split("\n")[1:]:
        words = line.split()
        if len(words) > 9 and words[3] == _LISTENING and int(words[1].rsplit(":", 1)[1], 16) == port:
            yield words[9]


def _sockets(directory: str) -> Iterator[str]:
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(f"{directory}/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target.removeprefix("socket:[").removesuffix("]")
