"""Fuzzing with a corpus that grows: inputs of before, changed a little, until a reader answers as it never did.

A reader gets bytes and either understands them or raises an error of kubetide's own. Anything else is a crash. What
an answer looks like (the type of the result, or the error without its particulars) tells inputs apart: exploring keeps
the first input of every new look as a file below `corpus/READER`, and the next run begins from there.

Without exploring the same tree gives the same inputs, and the corpus stays as it is.
"""

import hashlib
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType

from kubetide.errors import KubetideError

CORPUS = Path(__file__).parent / "corpus"
LARGEST = 2048
"""Bytes of a file that is kept: small ones show the same and change faster."""
MOST = 60
"""Files of a reader: beyond that the corpus is rich enough."""
HANGS_SECONDS = 60

Reader = Callable[[bytes], object]

PIECES = (
    *(b"0", b"-1", b"9" * 400, b"1e308", b"-1e999", b"NaN", b"Infinity", b"0x10", b"\xd9\xa3", b"1e-400", b"--5", b"+"),
    *(b"null", b"true", b"[]", b"{}", b'""', b"[" * 3000, b'{"a":' * 500, b"\\u0000", b'"', b":", b"\n", b"\x00"),
    *(b"\xff\xfe", b"\xed\xa0\x80", b"Ki", b"m", b"e", b"..", b"../", b"%s", b"{{", b"max", b"~", b"a" * 5000),
)


@dataclass(slots=True)
class Found:
    """What fuzzing came across."""

    inputs: int = 0
    crashes: list[str] = field(default_factory=list)
    looks: set[str] = field(default_factory=set)
    kept: int = 0


def seeds(name: str) -> list[bytes]:
    """Return the corpus of a reader."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]


def look(read: Reader, data: bytes) -> str:
    """Let a reader read, and return what its answer looks like; what is no error of ours is a crash."""
    try:
        answer = read(data)
    except KubetideError as error:
        return f"{type(error).__name__}: {re.sub(r'[^a-zA-Z ]+.*', '', str(error))[:60]}"
    return answer if isinstance(answer, str) else type(answer).__name__


def changed(rng: Random, corpus: list[bytes]) -> bytes:
    """Return an input of the corpus, changed in a few places."""
    data = bytearray(rng.choice(corpus))
    for _ in range(rng.randint(0, 4)):
        at, length = rng.randint(0, len(data)), rng.randint(0, 12)
        match rng.choice(("put", "cut", "double", "flip", "join")):
            case "put":
                data[at : at + length] = rng.choice(PIECES) if rng.random() < 0.5 else rng.randbytes(rng.randint(0, 6))
            case "cut":
                del data[at : at + 4 * length]
            case "double":
                data[at:at] = data[at : at + 8 * length]
            case "flip" if at < len(data):
                data[at] ^= 1 << rng.randint(0, 7)
            case _:
                data += rng.choice(corpus)
    return bytes(data)


def fuzz(name: str, read: Reader, *, examples: int, explore: bool) -> Found:
    """Try changed inputs of the corpus; with `explore` other ones each time, of which the new are kept."""
    corpus, found = seeds(name), Found()
    assert corpus, f"no corpus of {name}"

    def attempt(data: bytes) -> None:
        found.inputs += 1
        try:
            with not_for_ever():
                seen = look(read, data)
        except Exception as error:  # any other error is what is looked for
            found.crashes.append(f"{name}: {type(error).__name__}: {error} on {data[:200]!r}")
            return
        if seen not in found.looks:
            found.looks.add(seen)
            if explore and found.inputs > len(corpus) and len(data) <= LARGEST and len(seeds(name)) < MOST:
                keep(name, data)
                found.kept += 1

    for data in corpus:
        attempt(data)
    rng = Random() if explore else Random(name)
    for _ in range(examples):
        attempt(changed(rng, corpus))
    return found


def keep(name: str, data: bytes) -> None:
    """Add an input to the corpus of a reader."""
    (CORPUS / name / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


@contextmanager
def not_for_ever() -> Iterator[None]:
    """Break a reader that hangs: one input may take seconds on a busy machine, never a minute of CPU."""

    def over(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not read within {HANGS_SECONDS} s of CPU")

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, HANGS_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
