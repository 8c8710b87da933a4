"""Charts as plain values: described once, drawn as SVG or as terminal text.

Reports, `kubetide plot`, `kubetide top` and the dashboard describe what they show with `Chart` and its layers; the two
renderers know nothing about Kubernetes, and a chart looks the same wherever it is drawn.
"""

from kubetide.charts.axes import Axis, Unit
from kubetide.charts.chart import Band, Bars, Chart, Line, Marks, Points, Role
from kubetide.charts.svg import render as to_svg
from kubetide.charts.terminal import render as to_text

__all__ = ["Axis", "Band", "Bars", "Chart", "Line", "Marks", "Points", "Role", "Unit", "to_svg", "to_text"]
