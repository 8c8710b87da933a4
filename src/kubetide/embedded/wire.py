"""Waiting on a socket takes real time, also where the cluster lives in virtual time.

A paced loop counts its timers in virtual seconds. A limit that concerns the other end of a connection (how long a
request may take to arrive, a webhook to answer, a watch to last) is meant in real ones, or at 240 times real time a
webhook with ten seconds would get 40 milliseconds.
"""

import asyncio


def wire_seconds(seconds: float) -> float:
    """Return how long a timer of the running loop must be to take so many real seconds."""
    pace: float | None = getattr(asyncio.get_running_loop(), "pace", None)
    return seconds * pace if pace else seconds
