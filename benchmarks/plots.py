"""Draw the figures of scaling.py: benchmarks/figures/scaling.json in, docs/images/*.svg out.

An SVG of our own is a hundred lines, diffs well, and turns its colours with the reader's light or dark background.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).parent
WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 64, 190, 40, 52  # margins; the legend stands in the right one
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f } .title { font-weight: 600 } .grid { stroke: #d0d7de }
.line { fill: none; stroke-width: 2.2 } .dash { stroke-dasharray: 3 4; stroke-width: 1.6 }
.c0 { stroke: #0969da } .c1 { stroke: #bc4c00 } .c2 { stroke: #1a7f37 } .c3 { stroke: #8250df } .c4 { stroke: #bf3989 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .grid { stroke: #3d444d }
.c0 { stroke: #58a6ff } .c1 { stroke: #f0883e } .c2 { stroke: #3fb950 } .c3 { stroke: #bc8cff } .c4 { stroke: #f778ba } }
"""


@dataclass(frozen=True)
class Line:
    """A series of points; `colour` counts from 0, dashed lines have no entry of their own in the legend."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int
    dashed: bool = False


@dataclass(frozen=True)
class Axis:
    """Maps values to pixels."""

    label: str
    low: float
    high: float
    start: float  # pixels
    end: float
    ticks: Sequence[float]
    log: bool = False

    def place(self, value: float) -> float:
        low, high, at = (math.log(one) if self.log else one for one in (self.low, self.high, value))
        return self.start + (at - low) / ((high - low) or 1) * (self.end - self.start)


def logarithmic(label: str, values: Sequence[float], start: float, end: float) -> Axis:
    """Make an axis from the 1, 2 or 5 below the least value to the one above the largest."""
    steps = [one * 10.0**power for power in range(-4, 10) for one in (1, 2, 5)]
    low = max(step for step in steps if step <= min(values))
    high = min(step for step in steps if step >= max(values))
    inside = [step for step in steps if low <= step <= high]
    tens = [step for step in inside if math.log10(step).is_integer()]
    return Axis(label, low, high, start, end, tens if len(tens) > 2 else inside, log=True)


def even(label: str, values: Sequence[float], start: float, end: float) -> Axis:
    """Make an axis from 0 to above the largest value, in at most ten steps of 1, 2 or 5 times a power of ten."""
    step = next(one * 10.0**power for power in range(10) for one in (1, 2, 5) if one * 10**power * 10 >= max(values))
    number = math.ceil(max(values) / step)
    return Axis(label, 0, number * step, start, end, [at * step for at in range(number + 1)])


def chart(title: str, note: str, x: Axis, y: Axis, lines: Sequence[Line]) -> str:
    """Draw a chart."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            f"<title>{escape(title)}</title><style>{STYLE}</style>",
            f'<text class="title" x="{LEFT}" y="20">{escape(title)}</text>',
            *(parts for tick in x.ticks for parts in vertical(x.place(tick), f"{tick:,.12g}")),
            *(parts for tick in y.ticks for parts in horizontal(y.place(tick), f"{tick:,.12g}")),
            f'<text x="{(x.start + x.end) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x.label)}</text>',
            f'<text transform="rotate(-90)" x="{-(y.start + y.end) / 2}" y="16" text-anchor="middle">{escape(y.label)}</text>',
            *(parts for line in lines for parts in drawn(line, x, y)),
            *(parts for place, line in enumerate(legend(lines)) for parts in entry(place, line)),
            f'<text x="{x.end + 16}" y="{TOP + 22 * len(legend(lines)) + 18}">{escape(note)}</text>',
            "</svg>\n",
        ]
    )


def vertical(at: float, label: str) -> Iterator[str]:
    yield f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
    yield f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{label}</text>'


def horizontal(at: float, label: str) -> Iterator[str]:
    yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
    yield f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{label}</text>'


def drawn(line: Line, x: Axis, y: Axis) -> Iterator[str]:
    places = " ".join(f"{x.place(one):.1f},{y.place(two):.1f}" for one, two in line.points)
    yield f'<polyline class="line c{line.colour}{" dash" if line.dashed else ""}" points="{places}"/>'


def legend(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if not line.dashed]


def entry(place: int, line: Line) -> Iterator[str]:
    left, at = WIDTH - RIGHT + 16, TOP + 8 + 22 * place
    yield f'<line class="line c{line.colour}" x1="{left}" x2="{left + 22}" y1="{at}" y2="{at}"/>'
    yield f'<text x="{left + 30}" y="{at + 4}">{escape(line.name)}</text>'


def axes(lines: Sequence[Line], label: str, unit: str) -> tuple[Axis, Axis]:
    """Make axes that hold the lines: x logarithmic unless it begins with 0, y logarithmic."""
    xs, ys = zip(*(point for line in lines for point in line.points), strict=True)
    upward = HEIGHT - BOTTOM, TOP
    across = logarithmic if min(xs) else even
    return across(label, xs, LEFT, WIDTH - RIGHT), logarithmic(unit, ys, *upward)


def scaling(figures: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Draw one chart per axis: the median of each operation, and dashed that of the floor."""
    for label, points in figures["curves"].items():
        if len(points) < 2:
            continue
        names = next(iter(points.values()))["milliseconds"]
        lines = [
            Line(name, [(float(at), point["milliseconds"][name][side]) for at, point in points.items()], colour, dashed)
            for colour, name in enumerate(names)
            for side, dashed in (("ours", False), ("floor", True))
        ]
        x, y = axes(lines, label, "milliseconds of processor time")
        yield f"scaling-{label.split()[0]}", chart(f"Cost over {label}", "dashed: the floor", x, y, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=Path, default=HERE / "figures")
    parser.add_argument("--images", type=Path, default=HERE.parent / "docs" / "images")
    args = parser.parse_args()
    args.images.mkdir(parents=True, exist_ok=True)
    for title, drawing in scaling(json.loads((args.figures / "scaling.json").read_text())):
        target = args.images / f"{title}.svg"
        target.write_text(drawing)
        print(target)


if __name__ == "__main__":
    main()
