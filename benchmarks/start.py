"""How long `kubetide run hpa` takes from its start to its first reconcile, over TLS against a small cluster.

    python -m benchmarks.start [--runs 5]

The API server has a process of its own. Printed are seconds by the clock and of CPU until the first reconcile is
counted on the metrics page, and those of `kubetide version`; medians and all runs.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
from pathlib import Path

from benchmarks.beside import free_port, process, samples, spent, write_kubeconfig
from benchmarks.hpa_beside_original import TURNS, be_the_server


def first_reconcile(kubeconfig: Path, log: Path) -> tuple[float, float]:
    """Return the seconds until the first reconcile, by the clock and of CPU."""
    port, began = free_port(), time.monotonic()
    options = (f"--kubeconfig={kubeconfig}", f"--listen=127.0.0.1:{port}", "--leader-elect=false")
    with process(sys.executable, "-m", "kubetide", "run", "hpa", *options, log=log) as started:
        while time.monotonic() - began < 60:
            try:
                turns = sum(
                    sample.value for sample in samples(f"http://127.0.0.1:{port}/metrics") if sample.name == TURNS
                )
            except (urllib.error.URLError, ConnectionError):
                turns = 0.0
            if turns:
                return time.monotonic() - began, spent(started.pid)[0]
            time.sleep(0.02)
    raise SystemExit(f"no reconcile in a minute, see {log}")


def version() -> tuple[float, float]:
    """Return the seconds that `kubetide version` takes, by the clock and of CPU."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([sys.executable, "-m", "kubetide", "version"], check=True, stdout=subprocess.DEVNULL)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        be_the_server(1, 3, changing=False, tls=True)
        return
    with tempfile.TemporaryDirectory() as folder, process(sys.executable, "-m", __spec__.name, "--serve") as server:
        assert server.stdout is not None
        kubeconfig = Path(folder) / "kubeconfig"
        write_kubeconfig(kubeconfig, server.stdout.readline().strip())
        runs = [first_reconcile(kubeconfig, Path(folder) / "log") for _ in range(options.runs)]
    for name, found in (("run hpa", runs), ("version", [version() for _ in range(options.runs)])):
        wall, cpu = (statistics.median(each) for each in zip(*found, strict=True))
        print(
            f"{name}: {wall:.2f} s, {cpu:.2f} s of CPU; all: {', '.join(f'{one:.2f}/{two:.2f}' for one, two in found)}"
        )


if __name__ == "__main__":
    main()
