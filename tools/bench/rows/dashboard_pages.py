"""Measure a page in chromium: ``SIDE WORK``, where SIDE is ours, mlflow or tensorboard.

``table`` is the time from the start of the navigation until the row of a run is drawn, of 1,000
runs, and ``plot`` until the curves of a metric of ten runs with 1,000 steps each are drawn. Both
sides show the same values; each page is opened five times with an empty cache.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

RUNS, CURVES, STEPS, ROUNDS = 1000, 10, 1000, 5
BIN = Path(sys.executable).parent
TIMEOUT = 300_000.0  # ends a page that hangs, in milliseconds

#: The address of the page, and what waits until it is drawn.
Shown = tuple[str, Callable[[Page], object]]


def loss(run: int, step: int) -> float:
    return 1 / (1 + step * (run + 1) / STEPS)


def ours(work: str) -> Iterator[Shown]:
    from torchx_tracker_fsspec.tracker import create

    root = Path("runs").resolve()
    root.mkdir()
    Path(".torchxconfig").write_text(
        f"[torchx:tracker]\nfsspec =\n[tracker:fsspec]\nprotocol = file\nroot_path = {root}\n"
    )
    tracker = create(f"data:,protocol=file%0Aroot_path={root}")
    for run in range(CURVES if work == "plot" else RUNS):
        name = f"x://torchx/run-{run}"
        tracker.add_metadata(name, lr=run / RUNS, loss=loss(run, STEPS))
        for step in range(STEPS if work == "plot" else 0):
            tracker.add_metadata(name, step=step, loss=loss(run, step))
    with program("torchx", "dashboard", "--no-browser") as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()

        def drawn(page: Page) -> None:
            page.wait_for_function("!location.hash.startsWith('#token')")  # it has been read
            page.evaluate("location.hash = '#/runs'")
            page.locator(".trow", has_text="run-").first.wait_for()
            if work == "plot":
                # The driver's clicks would take most of the time.
                page.evaluate(
                    "document.querySelectorAll('.trow input').forEach((box) => box.click())"
                )
                page.get_by_role("button", name=f"Compare {CURVES} runs").evaluate("b => b.click()")
                page.locator(".u-over").first.wait_for()

        yield address, drawn


def mlflow(work: str) -> Iterator[Shown]:
    import mlflow as library

    store = f"sqlite:///{Path('mlflow.db').resolve()}"
    client = library.MlflowClient(store)
    experiment = client.create_experiment("bench")
    for run in range(CURVES if work == "plot" else RUNS):
        run_id = client.create_run(experiment, run_name=f"run-{run}").info.run_id
        steps = range(STEPS) if work == "plot" else (STEPS,)
        metrics = [library.entities.Metric("loss", loss(run, s), s, s) for s in steps]
        params = [library.entities.Param("lr", str(run / RUNS))]
        client.log_batch(run_id, metrics=metrics, params=params)
    port = "5055"
    command = ("mlflow", "server", "--backend-store-uri", store, "--port", port, "--workers", "1")
    with program(*command):
        base = wait_for_server(f"http://127.0.0.1:{port}/")
        mode = "&compareRunsMode=CHART" if work == "plot" else ""
        address = f"{base}#/experiments/{experiment}/runs?workflowType=machine_learning{mode}"
        wanted = ".js-plotly-plot" if work == "plot" else "text=/run-\\d+/ >> visible=true"
        yield address, lambda page: page.locator(wanted).first.wait_for()


def tensorboard(work: str) -> Iterator[Shown]:
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    for run in range(CURVES if work == "plot" else RUNS):
        writer = EventFileWriter(f"logs/run-{run}")
        for step in range(STEPS) if work == "plot" else (STEPS,):
            value = summary_pb2.Summary.Value(tag="loss", simple_value=loss(run, step))
            writer.add_event(
                event_pb2.Event(
                    wall_time=time.time(), step=step, summary=summary_pb2.Summary(value=[value])
                )
            )
        writer.close()
    port = "6055"
    with program("tensorboard", "--logdir", "logs", "--port", port, "--load_fast", "false"):
        base = wait_for_server(f"http://127.0.0.1:{port}/")
        runs = f"{base}data/runs"
        wanted = CURVES if work == "plot" else RUNS
        while urllib.request.urlopen(runs).read().count(b"run-") < wanted:  # noqa: S310
            time.sleep(0.5)  # it reads the files in the background
        chart = "line-chart canvas, line-chart svg"
        shown = chart if work == "plot" else "text=/run-\\d+/ >> visible=true"
        yield f"{base}#timeseries", lambda page: page.locator(shown).first.wait_for()


@contextmanager
def program(*argv: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program of this environment until the end of the block."""
    with open("server.log", "w") as log:
        process = subprocess.Popen(
            [str(BIN / argv[0]), *argv[1:]], stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def wait_for_server(address: str) -> str:
    while True:
        try:
            urllib.request.urlopen(address).read()  # noqa: S310
        except OSError:
            time.sleep(0.2)
        else:
            return address


def main() -> None:
    side, work = sys.argv[1:]
    sides = {"ours": ours, "mlflow": mlflow, "tensorboard": tensorboard}
    path = shutil.which("chromium")
    times = []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for address, drawn in sides[side](work):
            for _ in range(ROUNDS):
                context = chromium.new_context(viewport={"width": 1600, "height": 900})
                page = context.new_page()
                page.set_default_timeout(TIMEOUT)
                began = time.perf_counter()
                page.goto(address, wait_until="commit")
                drawn(page)
                times.append(time.perf_counter() - began)
                if picture := os.environ.get("BENCH_PICTURE"):
                    page.screenshot(path=picture)
                context.close()
        chromium.close()
    print({"seconds": statistics.median(times)})


main()
