"""Programs of others and our own that a test runs beside itself."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from kubetide.clock import SystemClock
from kubetide.kube.client.client import Client
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import from_files

PATIENCE = 180
"""How long anything may take on a machine that is busy with other work; nothing waits for longer than it must."""
KUBETIDE = (sys.executable, "-m", "kubetide")


@contextmanager
def program(log: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program while the block lasts."""
    with log.open("w") as written:
        process = subprocess.Popen(command, stdout=written, stderr=subprocess.STDOUT, text=True)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@asynccontextmanager
async def embedded(folder: Path, *flags: str) -> AsyncIterator[tuple[Client, Path]]:
    """Run `kubetide up` while the block lasts; gives its administrator and the path of the kubeconfig."""
    kubeconfig, log = folder / "kubeconfig", folder / "up.log"

    async def ready() -> bool:
        return kubeconfig.exists()

    simulated = any(flag.startswith("--sim") for flag in flags)
    bare = () if simulated else ("--bare",)
    with program(log, *KUBETIDE, "up", "--port=0", f"--kubeconfig={kubeconfig}", *bare, *flags):
        await until(ready, log)
        client = Client(HttpTransport(from_files([kubeconfig], clock=SystemClock())), clock=SystemClock())
        try:
            yield client, kubeconfig
        finally:
            await client.close()


async def until(wanted: Callable[[], Awaitable[bool]], log: Path) -> None:
    """Wait for something that another process brings about; fail with the end of its log."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not await wanted():  # noqa: ASYNC110 - another process has no event of ours
                await asyncio.sleep(0.2)
    except TimeoutError:
        pytest.fail(f"it did not come to it in {PATIENCE} s; the last of the log:\n{_end_of(log)}")


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]
