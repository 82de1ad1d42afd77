"""Writes the report of a run: ``report.json``, ``index.html`` and ``badge.svg``."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

_COLORS = {"passed": "#1a7f37", "failed": "#cf222e", "skipped": "#6e7781"}

_PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem;
  padding: 0 1rem; color: #1f2328; background: #fff; overflow-wrap: anywhere }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8884;
  vertical-align: top }}
td {{ overflow-wrap: anywhere }}
th, .number, .passed, .failed, .skipped {{ white-space: nowrap; overflow-wrap: normal }}
.passed {{ color: {passed} }} .failed {{ color: {failed} }} .skipped {{ color: {skipped} }}
:root {{ color-scheme: light dark }}
@media (prefers-color-scheme: dark) {{
body {{ color: #e6edf3; background: #0d1117 }}
.passed {{ color: #3fb950 }} .failed {{ color: #f85149 }} .skipped {{ color: #9198a1 }}
}}
</style>
<main>
<h1>{title}</h1>
<p>{summary}, {started}, {seconds} seconds.</p>
{sections}
</main>
</html>
"""

_BADGE = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img"\
 aria-label="{label}: {message}">
<rect width="{left}" height="20" fill="#444"/>
<rect x="{left}" width="{right}" height="20" fill="{color}"/>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="6" y="14" textLength="{label_length}">{label}</text>
<text x="{message_at}" y="14" textLength="{message_length}">{message}</text>
</g>
</svg>
"""
_BADGE_LABEL = "TorchX conformance"
_PIXELS_PER_CHARACTER = 6.5
_BADGE_MARGIN = 6


def write_report(folder: Path, data: dict[str, Any]) -> None:
    """Write the three files of a report into a folder, which is created if necessary.

    Raises:
        OSError: A file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n"
    (folder / "report.json").write_text(text, "utf-8")
    (folder / "index.html").write_text(html_page(data), "utf-8")
    (folder / "badge.svg").write_text(badge(data), "utf-8")


def summary_text(data: dict[str, Any]) -> str:
    """Return the numbers of tests as text, such as ``90 passed, 1 failed, 6 skipped``."""
    return ", ".join(f"{count} {outcome}" for outcome, count in data["summary"].items())


def html_page(data: dict[str, Any]) -> str:
    """Return the report as one HTML page, which loads nothing else."""
    # Failed tests come first.
    order = {outcome: place for place, outcome in enumerate(("failed", "skipped", "passed"))}
    tests = sorted(data["tests"], key=lambda test: order[test["outcome"]])
    sections = [
        _table("Unsupported features", ("Feature", "Reason"), list(data["unsupported"].items())),
        _table("Options", ("Option", "Value"), list(data["options"].items())),
        _table(
            "Tests",
            ("Test", "Result", "Seconds"),
            [((t["name"], t.get("reason", "")), t["outcome"], t["seconds"]) for t in tests],
        ),
        _table("Versions", ("Distribution", "Version"), list(data["versions"].items())),
    ]
    return _PAGE.format(
        title=f"TorchX conformance of {escape(_title(data))}",
        summary=escape(summary_text(data)),
        started=escape(data["started"]),
        seconds=data["seconds"],
        sections="\n".join(section for section in sections if section),
        **_COLORS,
    )


def _title(data: dict[str, Any]) -> str:
    """Return the name of the tested object, and of the class of tests if there is one."""
    return f"{data['name']}: {data['suite']}" if data.get("suite") else f"{data['name']}"


def _table(title: str, headers: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    if not rows:
        return ""
    lines = [f"<h2>{title}</h2>", "<table>"]
    lines.append("<tr>" + "".join(f'<th scope="col">{header}</th>' for header in headers) + "</tr>")
    lines += ["<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows]
    return "\n".join([*lines, "</table>"])


def _cell(value: Any) -> str:
    """Return a table cell; for a pair, the second text is a remark below the first."""
    if isinstance(value, tuple):
        text, remark = map(escape, value)
        return f"<td>{text}" + (f"<br><small>{remark}</small>" if remark else "") + "</td>"
    if isinstance(value, float):
        return f'<td class="number">{value:.1f}</td>'
    return (
        f'<td class="{value}">{value}</td>'
        if value in _COLORS
        else f"<td>{escape(str(value))}</td>"
    )


def badge(data: dict[str, Any]) -> str:
    """Return an SVG image with the name of the tested object and the numbers of tests."""
    label = f"{_BADGE_LABEL}: {data['name']}"
    message = summary_text(data)
    label_length, message_length = (
        round(len(text) * _PIXELS_PER_CHARACTER) for text in (label, message)
    )
    left = label_length + 2 * _BADGE_MARGIN
    right = message_length + 2 * _BADGE_MARGIN
    outcome = "failed" if data["summary"]["failed"] or not data["summary"]["passed"] else "passed"
    return _BADGE.format(
        width=left + right,
        left=left,
        right=right,
        color=_COLORS[outcome],
        label=escape(label),
        message=escape(message),
        label_length=label_length,
        message_length=message_length,
        message_at=left + _BADGE_MARGIN,
    )
