"""Numbers as text of a fixed width: bars, sparklines, amounts."""

from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEIGHTS = "▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """Return a bar that is filled by a share from 0 to 1."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return (_EIGHTHS[8] * full + (_EIGHTHS[rest] if rest else "")).ljust(width, "·")


def gauge(used: float | None, asked: float, recommended: float | None, width: int) -> str:
    """Return a bar of what is used, with marks for what is asked for (│) and what is recommended (◆).

    The largest of the three is as long as the bar, so only their proportions can be read from it.
    """
    most = max(used or 0.0, asked, recommended or 0.0)
    if most <= 0 or width < 2:
        return "·" * width
    cells = list(bar((used or 0.0) / most, width))
    for value, mark in ((asked, "│"), (recommended, "◆")):
        if value:
            cells[min(width - 1, max(0, round(value / most * width) - 1))] = mark
    return "".join(cells)


def sparkline(values: Sequence[float], width: int) -> str:
    """Return a line that rises and falls with the values, the newest on the right; means where there are too many."""
    if not values or width < 1:
        return " " * width
    most = max(values)
    size = max(1, -(-len(values) // width))
    means = []
    for end in range(len(values), 0, -size):
        part = values[max(0, end - size) : end]
        means.append(sum(part) / len(part))
    heights = [_HEIGHTS[round(mean / most * 7)] if most > 0 else _HEIGHTS[0] for mean in reversed(means[:width])]
    return "".join(heights).rjust(width)


def cores(value: float | None) -> str:
    """Return an amount of CPU: `0.14` or `12.3`; `?` where it is not known."""
    if value is None:
        return "?"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def memory(value: float | None) -> str:
    """Return an amount of memory: `454Mi` or `2.0Gi`; `?` where it is not known."""
    if value is None:
        return "?"
    mib = value / 2**20
    return f"{mib:.0f}Mi" if mib < 1000 else f"{mib / 1024:.1f}Gi"


def counted(number: int, noun: str) -> str:
    """Return `1 error`, `2 errors`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def cut(text: str, width: int) -> str:
    """Return text of exactly this width; what does not fit ends in an ellipsis."""
    if width <= 0:
        return ""
    return text.ljust(width) if len(text) <= width else text[: width - 1] + "…"
