"""The program of the test jobs: it logs, fails, waits and records a run, as its arguments say."""

from __future__ import annotations

import argparse
import base64
import json
import math
import os
import sys
import time
from pathlib import Path

from torchx_tracker import app_run_from_env

# An image of one pixel.
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
ODD_TEXT = "</script><script>document.title='broken'</script><img src=x onerror=alert(1)>"


def record(lr: float, width: int, steps: int) -> None:
    run = app_run_from_env()
    run.add_metadata(lr=lr, width=width, optimizer="adamw", note=ODD_TEXT)
    loss = 2.0
    for step in range(steps):
        loss = 2.0 * math.exp(-step * lr * 3) + 0.1 / width + 0.02 * math.sin(step * 1.7)
        run.add_metadata(step=step, loss=loss, accuracy=1 - loss / 2.2, diverged=math.nan)
    folder = Path(os.environ["ARTIFACTS"])
    (folder / "summary.json").write_text(json.dumps({"loss": loss, "name": "a<b>"}), "utf-8")
    (folder / "page.html").write_text("<script>parent.document.title='broken'</script>", "utf-8")
    (folder / "image.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>', "utf-8"
    )
    (folder / "notes.md").write_text("# <b>Notes</b>\n", "utf-8")
    (folder / "curve.png").write_bytes(base64.b64decode(PNG))
    for name in ("summary.json", "page.html", "image.svg", "notes.md", "curve.png"):
        run.add_artifact(name, str(folder / name), {"kind": "test"})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--lines", type=int, default=0)
    parser.add_argument("--wait-for", default="")
    parser.add_argument("--follow", default="")
    parser.add_argument("--odd", action="store_true")
    parser.add_argument("--fail", action="store_true")
    options = parser.parse_args()
    print("\x1b[1;32mloading\x1b[0m the data", flush=True)
    for number in range(options.lines):
        print(f"line {number} of the log, step {number % 7}")
    if options.odd:
        print(ODD_TEXT)
        print("\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m \u202egnirts\u202c end")
        sys.stdout.flush()
        sys.stdout.buffer.write(b"binary \xff\xfe\x00 bytes\n" + b"x" * 1_000_000 + b"\n")
        for part in range(0, 101, 20):
            print(f"\r{part:3}% |{'█' * (part // 5):20}|", end="", flush=True)
        print()
        print("warning: on standard error", file=sys.stderr, flush=True)
    if options.steps:
        record(options.lr, options.width, options.steps)
    if options.follow:
        # Copy the lines that the test appends to a file, until the line "end".
        Path(options.follow).touch()
        with open(options.follow, encoding="utf-8") as file:
            rest = ""
            while not rest.endswith("end\n"):
                text = file.read()
                sys.stdout.write(text)
                sys.stdout.flush()
                rest = (rest + text)[-10:]
                time.sleep(0.005)
    while options.wait_for and not Path(options.wait_for).exists():
        time.sleep(0.02)
    if options.fail:
        raise RuntimeError("CUDA out of memory: tried to allocate 2.00 GiB")
    print("done", flush=True)


if __name__ == "__main__":
    main()
