"""Small drawings inside a table, as SVG without styles: how much of a request is used, and how usage went lately."""

from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 120, 12
SPARK_WIDTH, SPARK_HEIGHT = 96, 20


def gauge(used: float | None, asked: float, recommended: float | None, text: str, *, tolerance: float = 0.0) -> str:
    """Return a bar of what is used, with a line at what is asked for and a diamond at what is recommended.

    The largest of the three is as long as the bar; `text` is what a screen reader says. The bar warns where more is
    used than asked for, beyond a share of it that is tolerated.
    """
    most = max(used or 0.0, asked, recommended or 0.0)
    parts = [f'<rect class="track" x="0" y="3" width="{WIDTH}" height="6" rx="3"/>']
    if most > 0:
        if used:
            over = " over" if asked and used > asked * (1 + tolerance) else ""
            width = max(1.0, used / most * WIDTH)
            parts.append(f'<rect class="used{over}" x="0" y="3" width="{width:.1f}" height="6" rx="3"/>')
        if asked:
            x = min(WIDTH - 1.0, asked / most * WIDTH)
            parts.append(f'<rect class="asked" x="{x - 1:.1f}" y="0" width="2" height="12"/>')
        if recommended:
            x = min(WIDTH - 4.0, max(4.0, recommended / most * WIDTH))
            parts.append(f'<path class="best" d="M{x:.1f} 1l4 5l-4 5l-4 -5Z"/>')
    return _svg("gauge", WIDTH, HEIGHT, text, "".join(parts))


def share(part: float | None, whole: float, text: str, *, mark: float | None = None) -> str:
    """Return a bar that is a whole, with the part of it that is used and a line at another part."""
    parts = [f'<rect class="track" x="0" y="3" width="{WIDTH}" height="6" rx="3"/>']
    if whole > 0:
        if part:
            width = min(1.0, part / whole) * WIDTH
            over = " over" if part > whole else ""
            parts.append(f'<rect class="used{over}" x="0" y="3" width="{width:.1f}" height="6" rx="3"/>')
        if mark is not None:
            x = min(1.0, mark / whole) * (WIDTH - 2)
            parts.append(f'<rect class="asked" x="{x:.1f}" y="0" width="2" height="12"/>')
    return _svg("share", WIDTH, HEIGHT, text, "".join(parts))


def spark(values: Sequence[float], text: str) -> str:
    """Return a line that rises and falls with the values, the newest on the right."""
    most = max(values, default=0.0)
    if len(values) < 2 or most <= 0:
        return _svg("spark", SPARK_WIDTH, SPARK_HEIGHT, text, "")
    step = SPARK_WIDTH / (len(values) - 1)
    points = [
        f"{place * step:.1f} {SPARK_HEIGHT - 1 - value / most * (SPARK_HEIGHT - 3):.1f}"
        for place, value in enumerate(values)
    ]
    area = f"M0 {SPARK_HEIGHT}L{'L'.join(points)}L{SPARK_WIDTH} {SPARK_HEIGHT}Z"
    return _svg(
        "spark", SPARK_WIDTH, SPARK_HEIGHT, text,
        f'<path class="area" d="{area}"/><path class="line" d="M{"L".join(points)}"/>',
    )  # fmt: skip


def _svg(name: str, width: int, height: int, text: str, inner: str) -> str:
    return (
        f'<svg class="{name}" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'preserveAspectRatio="{"none" if name == "share" else "xMinYMid"}" '
        f'aria-label="{escape(text, quote=True)}">{inner}</svg>'
    )
