"""Decoding large lists: kubetide's structs against the standard library and the official client's models.

    python benchmarks/kube_decode.py [--pods N] [--metrics N] [--repeats N] [--official-python PATH]

The inputs are a PodList (8 KB a pod, managed fields included) and a PodMetricsList. Each decoder runs in a process of
its own; CPU seconds are the median of the repeats, memory is the highest resident size above the input. Ratios are
against `json` of the standard library in the same run. The official client (`pip install kubernetes`) is measured
where the given interpreter has it.
"""

import argparse
import gc
import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def decoder(name: str, kind: str) -> Callable[[bytes], Any]:
    """Return the function that a variant measures."""
    if name == "json":
        return json.loads
    if name == "official":
        return _official(kind)
    import asyncio

    from kubetide.api.objects.core import Pod
    from kubetide.api.objects.metrics import PodMetrics
    from kubetide.kube.client.decoding import decode_page, tune_gc

    if name == "kubetide":
        tune_gc()
    struct: Any = Pod if kind == "pods" else PodMetrics
    return lambda body: asyncio.run(decode_page(body, struct))


def _official(kind: str) -> Callable[[bytes], Any]:
    # Imported by name: it is not a dependency of kubetide.
    client: Any = importlib.import_module("kubernetes.client")
    if kind == "metrics":
        # The official client has no model for it: custom objects come as plain dicts.
        return json.loads
    api = client.ApiClient()
    return lambda body: api.deserialize(body.decode(), "V1PodList", "application/json")


def measure(name: str, kind: str, path: Path, repeats: int) -> dict[str, float]:
    """Decode in this process; return CPU seconds and MB above the input."""
    decode = decoder(name, kind)
    body = path.read_bytes()
    before = _status("VmRSS")
    times = []
    for _ in range(repeats):
        gc.collect()
        started = time.process_time()
        result = decode(body)
        times.append(time.process_time() - started)
        del result
    return {"cpu": statistics.median(times), "peak": _status("VmHWM") - before}


def _status(field: str) -> float:
    """Return a memory figure of this process in MB, where the system has one."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return float("nan")


def main() -> None:
    """Make the inputs, run every decoder in a process of its own, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--metrics", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--official-python", default=sys.executable)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, kind, path = options.child
        print(json.dumps(measure(name, kind, Path(path), options.repeats)))
        return
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from simulated.large_objects import pod, pod_metrics

    with tempfile.TemporaryDirectory() as folder:
        for kind, count, make in (("pods", options.pods, pod), ("metrics", options.metrics, pod_metrics)):
            path = Path(folder) / f"{kind}.json"
            with path.open("w") as file:
                file.write('{"kind":"List","metadata":{"resourceVersion":"1"},"items":[')
                for number in range(count):
                    file.write(("," if number else "") + json.dumps(make(number), separators=(",", ":")))
                file.write("]}")
            print(f"{count} {kind}, {path.stat().st_size / 1e6:.0f} MB")
            _table(kind, path, options)


def _table(kind: str, path: Path, options: argparse.Namespace) -> None:
    results: dict[str, dict[str, float]] = {}
    for name in ("json", "kubetide-untuned", "kubetide", "official"):
        python = options.official_python if name == "official" else sys.executable
        command = [python, __file__, "--repeats", str(1 if name == "official" else options.repeats)]
        child = subprocess.run(
            [*command, "--child", name, kind, str(path)], capture_output=True, text=True, check=False
        )
        if child.returncode == 0:
            results[name] = json.loads(child.stdout)
        else:
            print(f"  {name:18} not measured: {child.stderr.strip().splitlines()[-1]}")
    base = results["json"]
    for name, result in results.items():
        cpu, peak = result["cpu"], result["peak"]
        print(
            f"  {name:18} {cpu:7.2f} s CPU  {cpu / base['cpu']:6.2f} x json   "
            f"{peak:7.0f} MB above the input  {peak / base['peak']:5.2f} x json"
        )


if __name__ == "__main__":
    main()
