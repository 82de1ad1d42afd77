"""Puts the name of a replica in front of its lines."""

from __future__ import annotations


def prefix_line(prefix: str, line: str) -> str:
    r"""Return a line with ``prefix`` in front, and after each ``\r`` and ``\n`` within the line."""
    head = line[:1] if line[:1] == "\r" else ""
    text, end = line[len(head) :], ""
    if text.endswith("\n"):
        text, end = text[:-1], "\n"
    if "\r" in text or "\n" in text:
        text = text.replace("\r", f"\r{prefix}").replace("\n", f"\n{prefix}")
    return f"{head}{prefix}{text}{end}"
