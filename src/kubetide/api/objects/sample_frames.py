"""What a node agent sends the metrics server: a frame per window, small enough for thousands of nodes.

A frame is one binary message, MessagePack, structs as arrays. Names are sent once: `named` gives each pod a slot for
the life of the connection, later frames refer to it by number, `gone` frees slots. Values are those of the window that
ended at `at`; CPU is its mean, memory the working set at its end, signals in the order of `SIGNALS`.

`alarms` are all containers of the node whose memory is running out. They do not wait for the end of a window: between
two windows they come in a frame that repeats the last sequence number and holds nothing else, which a server that does
not know alarms drops as seen.

Times are those of the agent's clock. The server takes only their difference from them (`sent` - `at`, how long the
sample has waited), so that clocks need not agree.
"""

import msgspec

STREAM_PATH = "/apis/kubetide.io/v1/samples"
"""Where the metrics server takes streams: a WebSocket."""
STREAM_PROTOCOL = "samples.kubetide.io"
STREAM_AUDIENCE = "kubetide-metrics"
"""For whom the agent's token is: it is worth nothing to the API server."""
STREAM_GROUP, STREAM_RESOURCE, STREAM_VERB = "kubetide.io", "samples", "create"
"""The permission that sending takes."""
STREAM_SERVICE, STREAM_CA = "kubetide-metrics", "kubetide-metrics-ca"
"""The Service of the metrics server, and the ConfigMap with the CA of its certificate, both in its namespace."""
FRAME_LIMIT = 512 * 1024
"""Bytes: 500 pods with ten containers each are less than half of it."""
FRAME_VERSION = 1

SIGNALS = (
    "cpu_throttled_ratio",
    "cpu_pressure_ratio",
    "memory_pressure_ratio",
    "memory_growth_bytes_per_second",
    "memory_limit_used_ratio",
    "oom_kills",
    "gpu_utilization_ratio",
)
"""Numbers about a pod beyond its usage. Ratios are between 0 and 1; only the growth may be negative."""


class UsageSample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """CPU in nanocores, working set in bytes."""

    cpu: int
    memory: int


class PodName(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pod gets a slot."""

    slot: int
    uid: str
    namespace: str
    name: str
    containers: tuple[str, ...]


class ContainerSignals(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a node knows of a container beyond its usage. None: it does not say."""

    need: int | None = None
    """Bytes that cannot be given back: memory in use without page cache."""
    peak: int | None = None
    """Nanocores: the 99th percentile of the seconds of the last minute."""
    throttled: float | None = None
    """Share of enforcement periods in which it was throttled."""


class MemoryAlarm(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A container whose memory is running out."""

    slot: int
    container: int
    """Its place among the containers of the slot."""
    need: int
    limit: int
    """Bytes: the lower one of memory.max and memory.high."""
    growth: float
    """Bytes per second."""
    pressure: float | None
    """Share of the last 10 s in which some task waited for memory."""
    hits: int | None
    """How often the limit was reached since the last look (memory.events)."""


class PodSample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The samples of one pod: a usage for each of its named containers, and as many signals as the agent knows."""

    slot: int
    containers: tuple[UsageSample, ...]
    signals: tuple[float | None, ...] = ()
    details: tuple[ContainerSignals, ...] = ()
    """One for each container, or none at all."""


class Frame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Everything about one window of one node."""

    version: int
    sequence: int
    at: float
    sent: float
    """Seconds since the epoch."""
    window: float
    """Seconds."""
    node: UsageSample | None = None
    named: tuple[PodName, ...] = ()
    gone: tuple[int, ...] = ()
    pods: tuple[PodSample, ...] = ()
    alarms: tuple[MemoryAlarm, ...] = ()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def encode_frame(frame: Frame) -> bytes:
    """Return a frame as a message."""
    return _encoder.encode(frame)


def decode_frame(message: bytes) -> Frame:
    """Return the frame of a message; raises msgspec.DecodeError where it is none."""
    try:
        return _decoder.decode(message)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error
