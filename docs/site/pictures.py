"""Pictures that are made from the repository: the layers, and the ratios of the benchmarks."""

from __future__ import annotations

import configparser
import html
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: The picture below the title of a page, by page.
ON_PAGES = {
    "architecture.md": "![Layers of packages](assets/layers.svg)",
    "benchmarks.md": "![Ratios of all rows](assets/ratios.svg)",
}
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1b1b3a}.box{fill:#eef0fb;stroke:#5c6bc0}"
    ".row{fill:#fafbff;stroke:#c5cae9}.bar{fill:#5c6bc0}.bad{fill:#b3261e}.axis{stroke:#9fa8da}"
    "svg{background:#fff}"
)


def files() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each picture."""
    yield "assets/layers.svg", layers((ROOT / ".importlinter").read_text("utf-8"))
    yield "assets/ratios.svg", ratios((ROOT / "docs/benchmarks.md").read_text("utf-8"))


def layers(importlinter: str) -> str:
    """Return a picture of the layers, the highest first.

    Args:
        importlinter: The configuration of import-linter, which names the packages of each layer.
    """
    parser = configparser.ConfigParser()
    parser.read_string(importlinter)
    [text] = [section["layers"] for section in parser.values() if "layers" in section]
    rows = [[name.strip() for name in line.split("|")] for line in text.strip().splitlines()]
    width, parts, y = 900, [], 10
    for row in rows:
        per_line = 4
        lines = [row[i : i + per_line] for i in range(0, len(row), per_line)]
        height = 36 * len(lines) + 14
        parts.append(
            f'<rect class="row" x="10" y="{y}" width="{width - 20}" height="{height}" rx="8"/>'
        )
        for number, names in enumerate(lines):
            for column, name in enumerate(names):
                x, top = 24 + column * 214, y + 10 + number * 36
                parts.append(
                    f'<rect class="box" x="{x}" y="{top}" width="204" height="28" rx="5"/>'
                )
                at = f'x="{x + 102}" y="{top + 19}"'
                parts.append(f'<text {at} text-anchor="middle">{html.escape(name)}</text>')
        y += height + 10
    return _svg(width, y, "Layers: each package imports from lower layers only", parts)


def ratios(page: str) -> str:
    """Return a bar chart of the ratios of our values to the values of the peer, upstream's TorchX.

    Args:
        page: The Markdown of docs/benchmarks.md.
    """
    found = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 6 and re.fullmatch(r"[\d.]+", cells[3]):
            found.append((re.sub(r"[`*]|\(.*?\)", "", cells[0]), float(cells[3]), cells[5]))
    width, parts = 900, []
    for number, (label, ratio, kept) in enumerate(found):
        y = 30 + number * 26
        shown = label if len(label) < 62 else f"{label[:60]}…"
        kind = "bad" if "no" in kept else "bar"
        parts.append(f'<text x="420" y="{y + 14}" text-anchor="end">{html.escape(shown)}</text>')
        size = f'width="{ratio * 400:.1f}" height="14"'
        parts.append(f'<rect class="{kind}" x="430" y="{y + 3}" {size}/>')
        parts.append(f'<text x="{436 + ratio * 400:.1f}" y="{y + 14}">{ratio:.3f}</text>')
    bottom = 34 + len(found) * 26
    parts.append(f'<line class="axis" x1="830" y1="24" x2="830" y2="{bottom}"/>')
    parts.append('<text x="830" y="18" text-anchor="middle">as fast as the peer</text>')
    return _svg(width, bottom + 10, "Ratio of our time to the peer's; shorter is faster", parts)


def _svg(width: int, height: int, title: str, parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>{''.join(parts)}</svg>\n"
    )
