"""What benchmarks share that run a program of ours beside upstream: processes, their cost, their metrics page."""

import os
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TypeVar

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

T = TypeVar("T")
PATIENCE = 600


@contextmanager
def process(*command: str, log: Path | None = None) -> Iterator["subprocess.Popen[str]"]:
    """Run a program while the block lasts; its output goes to `log`, or to its pipe."""
    with (log or Path(os.devnull)).open("w") as errors:
        out = subprocess.PIPE if log is None else errors
        started = subprocess.Popen(command, stdout=out, stderr=errors, text=True)
        try:
            yield started
        finally:
            started.kill()
            started.communicate()


def spent(pid: int) -> tuple[float, float]:
    """Return the CPU seconds of a process so far and its peak of resident memory in MB, as the kernel counts them."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return cpu, int(status["VmHWM"].split()[0]) / 1024


def samples(url: str) -> list[Sample]:
    """Return all samples of a metrics page on this machine, whatever certificate it shows."""
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    with urllib.request.urlopen(url, timeout=30, context=trusting) as page:
        text = page.read().decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def wait_for(read: Callable[[], T], enough: Callable[[T], bool]) -> T:
    """Read again and again until it is enough; a page that is not served yet is not."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            reading = read()
            if enough(reading):
                return reading
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        time.sleep(0.5)
    raise SystemExit(f"it did not come to it in {PATIENCE} s")


def side_by_side(contestants: Mapping[str, Callable[[], T]]) -> dict[str, T]:
    """Let all run at the same time, so that whatever else the machine does slows all of them alike."""
    with ThreadPoolExecutor(len(contestants)) as threads:
        started = {name: threads.submit(work) for name, work in contestants.items()}
        return {name: work.result() for name, work in started.items()}


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each figure over several runs."""
    return {what: median(run[what] for run in runs) for what in runs[0]}


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def write_kubeconfig(file: Path, url: str) -> None:
    """Write a kubeconfig for a server that lets everybody in, whatever certificate it shows."""
    trust = ", insecure-skip-tls-verify: true" if url.startswith("https") else ""
    file.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
        f"clusters: [{{name: here, cluster: {{server: '{url}'{trust}}}}}]\n"
        "users: [{name: me, user: {}}]\ncontexts: [{name: here, context: {cluster: here, user: me}}]\n"
    )
