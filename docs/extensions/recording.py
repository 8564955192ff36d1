"""Records `workingmem chat` in a terminal, as an SVG that plays by itself.

A shell runs the real program in a pseudo-terminal. What it prints is kept as it is; the times are ours, so that the picture is
the same each time but for dates and ids. A reader who prefers reduced motion sees the last screen, which stands still.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import termios
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from rich.ansi import AnsiDecoder
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SHELL, CHAT = "$ ", "> "  # the prompts
START = "workingmem chat --dir memory"
SESSION = (
    (START, CHAT),
    ("My dog is called Nougat.", CHAT),
    ("Remember that I am allergic to walnuts.", CHAT),
    ("/new", CHAT),
    ("What is my dog called?", CHAT),
    ("/memory", CHAT),
    ("/quit", SHELL),
    (START, CHAT),
    ("Which nuts am I allergic to?", CHAT),
    ("/quit", SHELL),
)
COLUMNS, ROWS = 96, 24
KEY, THINK, LINE, READ, REST = (
    0.045,
    0.35,
    0.08,
    0.9,
    5.0,
)  # seconds: a key, an answer, a line of it, after it, at the end
WAIT = 30  # seconds at most for a prompt
X, Y, HIGH, WIDE = 14, 14, 18, 7.83  # pixels: the first character, a line, a character of 13 pixels
STYLE = """
text { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #e6edf3; white-space: pre }
.dim { fill: #9aa4af } .bold { font-weight: 700 } .italic { font-style: italic } .typed { fill: #7ee787 }
"""


class Line(NamedTuple):
    """A line of the terminal, and when it appears."""

    text: Text
    seconds: float
    typed: int = 0  # characters at the end that a person types
    begin: float = 0  # when the person begins


def record() -> str:
    """Run the session, and return the picture."""
    with TemporaryDirectory() as folder:
        return drawn(list(timed(played(Path(folder)))))


def played(folder: Path) -> Iterator[tuple[str, str]]:
    """Type each line of the session into a shell, and yield it with what is printed before the next prompt."""
    program = folder / "workingmem"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m langchain_workingmem.cli "$@"\n')
    program.chmod(0o755)
    (folder / "inputrc").write_text("set enable-bracketed-paste off\n")
    kept = {name: value for name, value in os.environ.items() if name not in {"OPENAI_API_KEY", "REDIS_URL"}}
    environment = kept | {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PS1": SHELL,
        "TERM": "xterm-256color",
        "INPUTRC": str(folder / "inputrc"),
        "HISTFILE": str(folder / "history"),
        "HOME": str(folder),
    }
    child, terminal = pty.fork()
    if not child:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.chdir(folder)
        os.execvpe("bash", ["bash", "--norc", "--noprofile"], environment)  # noqa: S606, S607 - the shell of whoever records
    try:
        until(terminal, SHELL)
        for typed, prompt in SESSION:
            os.write(terminal, typed.encode() + b"\n")
            printed = until(terminal, prompt)
            yield typed, printed.partition("\r\n")[2].removesuffix(prompt)
    finally:
        os.close(terminal)  # hangs up, which ends the shell
        os.waitpid(child, 0)


def until(terminal: int, prompt: str) -> str:
    """Read until the program waits at its prompt."""
    found = b""
    while not found.endswith(f"\n{prompt}".encode()) and found != prompt.encode():
        if not select.select([terminal], [], [], WAIT)[0]:
            raise TimeoutError(f"no prompt {prompt!r} after {WAIT} s: {found!r}")
        found += os.read(terminal, 65536)
    return found.decode()


def timed(session: Iterator[tuple[str, str]]) -> Iterator[Line]:
    """Give each line its time. The recording begins when the program has started, so that there is something to see."""
    now, prompt, pace = 0.0, SHELL, 0
    for (typed, printed), (_, after) in zip(session, SESSION, strict=True):
        yield Line(Text.assemble(prompt, (typed, "typed")), now, pace * len(typed), now + READ)
        now += pace * (READ + KEY * len(typed) + THINK)
        for text in map(AnsiDecoder().decode_line, printed.splitlines()):
            for row in text.divide(range(COLUMNS, len(text), COLUMNS)):
                row.rstrip()
                yield Line(row, now)
                now += pace * LINE
        prompt, pace = after, 1
    yield Line(Text(prompt), now)


# ---------------------------------------------------------------------- the picture


def drawn(lines: Sequence[Line]) -> str:
    """Draw the lines under each other; the animation shows them one by one and scrolls. At rest, the picture is the last screen."""
    total = lines[-1].seconds + REST
    rules, rows = [], []

    def at(seconds: float) -> str:
        return f"{100 * seconds / total:.2f}%"

    for number, line in enumerate(lines):
        rules.append(f"@keyframes l{number}{{0%{{opacity:0}}{at(line.seconds)},to{{opacity:1}}}}")
        rows.append(f'<g class="l" style="animation-name:l{number}">{spans(line.text, Y + HIGH * number)}</g>')
        if line.typed:
            begin, end = at(line.begin), at(line.begin + KEY * line.typed)
            x, width = X + WIDE * (len(line.text) - line.typed), WIDE * line.typed + 2
            rules.append(
                f"@keyframes k{number}{{0%,{begin}{{transform:none;animation-timing-function:steps({line.typed})}}"
                f"{end},to{{transform:translateX({width:.0f}px)}}}}"
            )
            rows.append(
                f'<rect class="k" x="{x - 1:.1f}" y="{HIGH * number}" width="{width:.0f}" height="{HIGH}" '
                f'style="animation-name:k{number}"/>'
            )
    last = HIGH * max(0, len(lines) - ROWS)
    steps = ["0%{transform:none}"]
    steps += [
        f"{at(line.seconds)}{{transform:translateY({-HIGH * (number + 1 - ROWS)}px)}}"
        for number, line in enumerate(lines)
        if number >= ROWS
    ]
    rules.append(f"@keyframes s{{{''.join(steps)}to{{transform:translateY({-last}px)}}}}")
    width, height = round(2 * X + WIDE * COLUMNS), 24 + HIGH * ROWS
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">
<title>{escape(START)}</title>
<style>{STYLE}.s {{ transform: translateY({-last}px) }} .k {{ fill: #161b22; display: none }}
@media (prefers-reduced-motion: no-preference) {{
.l, .s {{ animation: {total:.1f}s step-end infinite }} .s {{ animation-name: s }}
.k {{ display: inline; animation: {total:.1f}s linear infinite }}
{"".join(rules)}
}}</style>
<rect width="{width}" height="{height}" rx="8" fill="#161b22"/>
<svg y="12" height="{height - 24}"><g class="s">
{chr(10).join(rows)}
</g></svg>
</svg>
"""


def spans(text: Text, y: int) -> str:
    """Draw a line: a `tspan` for each style."""
    parts = []
    for one in text.split("\n")[0].divide(sorted({edge for span in text.spans for edge in (span.start, span.end)})):
        styles = " ".join(str(span.style) for span in one.spans)
        names = " ".join(name for name in ("dim", "bold", "italic", "typed") if name in styles)
        words = escape(one.plain, quote=False)
        parts.append(f'<tspan class="{names}">{words}</tspan>' if names else words)
    size = f'textLength="{WIDE * len(text):.1f}" lengthAdjust="spacingAndGlyphs"'  # fonts differ in width
    return f'<text x="{X}" y="{y}" {size} xml:space="preserve">{"".join(parts)}</text>' if text.plain.strip() else ""


if __name__ == "__main__":
    sys.stdout.write(record())
