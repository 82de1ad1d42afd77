"""Tests of ``torchx sweep`` and its Python functions, with local elements."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sweep_helpers import Torchx, command, numbers, read_json

from torchx_runner import get_runner
from torchx_specs.errors import RequestError
from torchx_sweep import ElementState, plan, results, wait
from torchx_sweep.store import Store


def submit(torchx: Torchx, *words: str) -> str:
    ran = torchx("sweep", *words)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_each_element_runs_once_and_results_have_its_parameters(torchx: Torchx, out: Path) -> None:
    handle = submit(
        torchx, "comp.py:train", "--out", str(out), "--grid", "n=0:3", "--grid", "lr=1,2"
    )
    waited = torchx("sweep", "wait", handle)
    assert waited.returncode == 0, waited.stdout
    assert "6 elements: 6 SUCCEEDED" in waited.stdout
    assert numbers(out) == [0, 0, 1, 1, 2, 2]
    rows = list(csv.DictReader(io.StringIO(torchx("sweep", "results", handle, "-o", "csv").stdout)))
    assert [(row["n"], row["lr"]) for row in rows] == [(n, lr) for n in "012" for lr in "12"]
    assert {row["state"] for row in rows} == {"SUCCEEDED"}
    assert all(float(row["duration"]) > 0 for row in rows)
    app = torchx("status", rows[0]["handle"], "--json")
    assert read_json(app.stdout)["state"] == "SUCCEEDED"


def test_the_commands_take_short_names(torchx: Torchx, out: Path) -> None:
    words = ["comp.py:train", "--out", str(out), "--grid", "n=0,1"]
    first, second = (submit(torchx, *words) for _ in range(2))
    for text, handle in [
        ("@1", second),
        ("@2", first),
        ("comp.py:train", second),
        (first.rpartition("/")[2][:-1], first),
        ("sweep://" + first.rpartition("/")[2][:-1], first),
    ]:
        ran = torchx("sweep", "status", "--json", text)
        assert read_json(ran.stdout)["handle"] == handle
        assert f"{text} is {handle}" in ran.stderr
    assert torchx("sweep", "wait", "@2").returncode == 0
    unknown = torchx("sweep", "status", "@3")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "unknown app: @3" in unknown.stderr


def test_a_failed_element_is_retried_then_shown_and_run_again(torchx: Torchx, out: Path) -> None:
    words = ["comp.py:train", "--out", str(out), "--zip", "n=0,1", "code=0,3", "--retries", "1"]
    ran = torchx("sweep", *words, "--wait")
    assert ran.returncode == 1
    handle = ran.stdout.strip()
    assert numbers(out) == [0, 1, 1]
    assert "failed: element 1 (n=1, code=3): main/0: exit code 3" in ran.stderr
    log = torchx("sweep", "log", handle, "--failed")
    assert log.stdout == "1: element 1 GPU=\n"
    assert torchx("sweep", "rerun", "--failed", handle).stdout == "1 element queued\n"
    assert torchx("sweep", "wait", handle).returncode == 1
    assert numbers(out) == [0, 1, 1, 1, 1]
    (failed,) = read_json(torchx("sweep", "results", handle, "--state", "failed", "--json").stdout)
    assert failed["attempt"] == 3


def test_cancel_ends_running_elements_and_starts_no_other(torchx: Torchx, out: Path) -> None:
    words = ["--max-parallel", "1", "comp.py:train", "--sleep", "600", "--out", str(out)]
    handle = submit(torchx, *words, "--grid", "n=0:3")
    while not numbers(out):
        assert torchx("sweep", "status", handle).returncode == 0
    assert torchx("sweep", "cancel", handle).returncode == 0
    waited = torchx("sweep", "wait", handle, "--json")
    assert waited.returncode == 1
    assert read_json(waited.stdout)["counts"]["CANCELLED"] == 3
    assert numbers(out) == [0]


def test_delete_removes_the_record_the_apps_and_the_files(
    torchx: Torchx, out: Path, home: Path
) -> None:
    handle = submit(torchx, "comp.py:train", "--out", str(out), "--grid", "n=0:2", "--wait")
    assert torchx("sweep", "delete", handle).returncode == 0
    assert read_json(torchx("sweep", "list", "--json").stdout) == []
    assert read_json(torchx("list", "-s", "local_cwd", "--json").stdout) == []
    assert {path.name for path in (home / "sweeps").iterdir()} <= {
        "sweeps.db",
        "sweeps.db-wal",
        "sweeps.db-shm",
    }
    missing = torchx("sweep", "status", handle)
    assert missing.returncode == 1
    assert missing.stderr.count("\n") == 1


def test_all_invalid_elements_are_reported_before_the_first_is_submitted(
    torchx: Torchx, out: Path, tmp_path: Path
) -> None:
    lines = ["n,lr", *(f"{i},0.1" for i in range(950))]
    lines[916] = "x,0.1"
    lines[940] = "1,fast"
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    ran = torchx("sweep", "comp.py:train", "--out", str(out), "--from", "rows.csv")
    assert ran.returncode == 2
    assert "rows.csv:917: train: n: 'x' is not an int" in ran.stderr
    assert "rows.csv:941: train: lr: 'fast' is not a float" in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert read_json(torchx("sweep", "list", "--json").stdout) == []
    assert numbers(out) == []


def test_text_that_no_process_can_receive_is_reported_before_the_first_submission(
    torchx: Torchx, tmp_path: Path
) -> None:
    values = ["a", "b\0", "c", "d\ud800", "é"]
    rows = "".join(f"{json.dumps({'n': 1, 'msg': value})}\n" for value in values)
    (tmp_path / "rows.jsonl").write_text(rows)
    ran = torchx("sweep", "comp.py:sized", "--from", "rows.jsonl")
    assert ran.returncode == 2
    assert "rows.jsonl:2: role 'main': args[0] contains a NUL character; " in ran.stderr
    assert "rows.jsonl:4: role 'main': args[0] contains a lone surrogate" in ran.stderr
    assert ran.stderr.count("rows.jsonl:") == 2
    assert read_json(torchx("sweep", "list", "--json").stdout) == []


def test_numbers_that_are_not_finite_are_texts_in_json(torchx: Torchx, out: Path) -> None:
    words = ["comp.py:train", "--out", str(out), "--n", "1", "--from", "rows.jsonl"]
    Path("rows.jsonl").write_text('{"lr": NaN}\n{"lr": 1e999}\n{"lr": 0.5}\n')
    handle = submit(torchx, *words, "--max-parallel", "1")
    wait(handle, timeout=300)
    for ran in (
        torchx("sweep", "results", handle, "-o", "json"),
        torchx("sweep", *words, "--dryrun", "--json"),
    ):
        data = json.loads(ran.stdout, parse_constant=pytest.fail)
        rows = data["elements"] if isinstance(data, dict) else [e["parameters"] for e in data]
        assert [row["lr"] for row in rows] == ["NaN", "Infinity", 0.5]


def test_a_status_shows_the_beginning_of_a_long_value(torchx: Torchx) -> None:
    handle = submit(torchx, "comp.py:sized", "--n", "1", "--grid", f"msg={'x' * 100_000}")
    with Store() as store:
        elements = store.elements(wait(handle, timeout=300).handle.rpartition("/")[2])
        elements[0].state = ElementState.FAILED
        store.update(handle.rpartition("/")[2], elements)
    shown = torchx("sweep", "status", handle).stdout
    assert f"(msg={'x' * 100}...)" in shown
    assert len(shown) < 1_000


def test_an_unknown_parameter_is_refused(torchx: Torchx, out: Path) -> None:
    ran = torchx("sweep", "comp.py:train", "--out", str(out), "--grid", "lrr=1", "--grid", "n=1")
    assert ran.returncode == 2
    assert "train has no parameter 'lrr'; did you mean 'lr'?" in ran.stderr


def test_a_parameter_that_is_also_an_argument_is_refused(torchx: Torchx, out: Path) -> None:
    ran = torchx("sweep", "comp.py:train", "--out", str(out), "--n", "7", "--grid", "n=0:3")
    assert ran.returncode == 2
    assert "'n' is among the arguments of train, and in the sweep" in ran.stderr


def test_an_argument_after_the_options_is_refused(torchx: Torchx, out: Path) -> None:
    ran = torchx("sweep", "comp.py:train", "--grid", "n=0:3", "extra")
    assert ran.returncode == 2
    assert "unexpected argument 'extra'" in ran.stderr


def test_an_element_larger_than_the_limit_is_refused(torchx: Torchx, out: Path) -> None:
    words = ["comp.py:train", "--out", str(out), "--grid", "n=0:2", "--grid", "gpu=1,2"]
    ran = torchx("sweep", *words, "--limit", "gpus=1")
    assert ran.returncode == 2
    assert "n=0, gpu=2: element 1 needs gpus=2, but the limit is 1" in ran.stderr


def test_elements_that_run_at_the_same_time_get_different_gpus(
    torchx: Torchx, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    words = ["comp.py:train", "--out", str(out), "--gpu", "1", "--sleep", "0.5"]
    handle = submit(torchx, *words, "--grid", "n=0:2", "--limit", "cpus=2", "--wait")
    log = torchx("sweep", "log", handle).stdout
    assert sorted(line.rpartition("GPU=")[2] for line in log.splitlines()) == ["0", "1"]


def test_a_dry_run_shows_the_elements_and_submits_nothing(torchx: Torchx, home: Path) -> None:
    words = ["comp.py:train", "--out", "x", "--grid", "n=0:2", "--grid", "lr=1,2"]
    ran = torchx("sweep", "--dryrun", "--json", *words)
    assert [e["n"] for e in read_json(ran.stdout)["elements"]] == [0, 0, 1, 1]
    assert not (home / "sweeps").exists()


def test_a_sweep_after_a_failed_one_is_cancelled_with_the_reason(torchx: Torchx, out: Path) -> None:
    words = ["comp.py:train", "--out", str(out)]
    first = torchx("sweep", *words, "--zip", "n=0", "code=1", "--wait").stdout.strip()
    ran = torchx("sweep", *words, "--grid", "n=1", "--after", first, "--wait")
    assert ran.returncode == 1
    assert "1 CANCELLED" in ran.stderr
    status = torchx("sweep", "status", ran.stdout.strip())
    assert f"note: --after {first}:ok: this app is FAILED" in status.stdout
    assert numbers(out) == [0]
    after = torchx("sweep", *words, "--grid", "n=2", "--after", f"{first}:failed", "--wait")
    assert after.returncode == 0, after.stderr
    assert numbers(out) == [0, 2]


def test_the_handle_of_an_app_is_no_handle_of_a_sweep(torchx: Torchx) -> None:
    ran = torchx("sweep", "status", "local_cwd://torchx/x")
    assert ran.returncode == 2
    assert "'local_cwd://torchx/x' is not the handle of a sweep" in ran.stderr


def test_the_runner_forwards_typed_values(out: Path) -> None:
    with get_runner() as runner:
        grid = {"n": range(2), "lr": [1e-3]}
        handle = runner.sweep("comp.py:train", ["--out", str(out)], "local_cwd", grid=grid)
    assert wait(handle, timeout=300).counts == {ElementState.SUCCEEDED: 2}
    assert [e.parameters for e in results(handle)] == [{"n": 0, "lr": 0.001}, {"n": 1, "lr": 0.001}]


def test_an_unknown_option_in_python_is_a_type_error(out: Path) -> None:
    with get_runner() as runner, pytest.raises(TypeError, match="gird"):
        runner.sweep("comp.py:train", ["--out", str(out)], "local_cwd", gird={"n": [1]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": {"n": 5}}, "grid: the values of the parameter 'n' are 5; give a list"),
        ({"grid": {"n": iter([1])}}, "grid: the values of the parameter 'n' are <list_iter"),
        ({"grid": {"lr": "12"}}, "grid: the values of the parameter 'lr' are '12'; give a list"),
        ({"grid": {"n": [1]}, "retries": 1.5}, "--retries is 1.5; it must be a number, 0 or"),
        ({"grid": {"n": [1]}, "retries": True}, "--retries is True; it must be a number, 0 or"),
        ({"grid": {"n": [1]}, "sample": "2"}, "--sample is '2'; it must be a number, 1 or more"),
        ({"grid": {"n": [1]}, "max_parallel": 1.5}, "--max-parallel is 1.5; it must be a number"),
        ({"grid": {"n": [1]}, "limits": {"cpu": 1}}, "unknown resource 'cpu'; did you mean 'cpus'"),
        ({"grid": {"n": [1]}, "limits": {"cpus": "1"}}, "the limit of cpus is '1'; it must be"),
        ({"zips": ["n=1"]}, "zips has the text 'n=1'; each item must be a list or a dict"),
    ],
)
def test_values_of_wrong_types_in_python_are_refused(
    out: Path, options: dict[str, Any], message: str
) -> None:
    with get_runner() as runner, pytest.raises(RequestError, match=message):
        plan(runner, "comp.py:train", ["--out", str(out)], "local_cwd", **options)


def test_a_grid_in_python_may_be_one_text(out: Path) -> None:
    with get_runner() as runner:
        found = plan(runner, "comp.py:train", ["--out", str(out)], "local_cwd", grid="n=0:3")
    assert len(found.apps) == 3


def test_commands_for_apps_take_the_handle_of_a_sweep(torchx: Torchx, out: Path) -> None:
    handle = submit(torchx, "comp.py:train", "--out", str(out), "--grid", "n=0:2", "--wait")
    assert "2 elements: 2 SUCCEEDED" in torchx("status", handle).stdout
    for verb in ("wait", "log", "cancel", "delete"):
        assert torchx(verb, handle).returncode == 0
    for verb in ("status", "log", "wait", "cancel", "delete"):
        ran = torchx(verb, handle)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert f"unknown app: {handle}" in ran.stderr
    assert f"{handle} is a sweep; use 'torchx sweep status'" in torchx("describe", handle).stderr


def test_apps_and_sweeps_are_numbered_together(torchx: Torchx) -> None:
    words = ("--grid", "n=1,2", "--wait", "--", "true", "{n}")
    sweep = submit(torchx, *words)
    app = torchx("run", "--wait", "--", "true").stdout.strip()
    history = read_json(torchx("history", "--json").stdout)
    assert [(entry["number"], entry["handle"]) for entry in history] == [(1, app), (2, sweep)]
    assert torchx("status", "@2").stdout.startswith(f"{sweep}: SUCCEEDED")
    assert torchx("sweep", "wait", "@2").returncode == 0
    assert f"App: {app}" in torchx("status", "@1").stdout
    refused = torchx("sweep", "status", "@1")
    assert refused.returncode == 2
    assert f"'{app}' is not the handle of a sweep" in refused.stderr
    assert f"{sweep} is a sweep" in torchx("describe", "@2").stderr


def test_compare_shows_the_elements_of_sweeps_beside_apps(torchx: Torchx, out: Path) -> None:
    sweep = submit(torchx, "comp.py:train", "--out", str(out), "--grid", "n=4,5", "--wait")
    app = torchx("run", "--wait", "comp.py:train", "--out", str(out), "--n", "6").stdout.strip()
    rows = read_json(torchx("compare", "@2", app, "-o", "json").stdout)
    assert [(row["fields"]["n"], row["state"]) for row in rows] == [
        ("4", "SUCCEEDED"),
        ("5", "SUCCEEDED"),
        ("6", "SUCCEEDED"),
    ]
    assert [row["handle"] for row in rows][2] == app
    assert "out" not in rows[0]["fields"]  # the same in all of them
    assert rows[0]["duration"] is not None
    table = torchx("compare", sweep).stdout.splitlines()
    assert [line.split()[1] for line in table[2:]] == ["SUCCEEDED"] * 2
    gone = torchx("compare", "sweep://torchx/gone", app)
    assert (gone.returncode, "unknown app: sweep://torchx/gone" in gone.stderr) == (1, True)


def test_a_sweep_of_a_script_gives_it_the_parameters(torchx: Torchx, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os, sys; print(sys.argv[1:], os.environ['SEED'])")
    words = ["--name", "t-{lr}", "--env", "SEED=s{seed}", str(script), "--out", "{seed}.txt"]
    axes = ["--grid", "lr=0.1,-2", "--zip", "seed=0:2", "step-size=7,8", "--wait"]
    handle = submit(torchx, *words, *axes)
    assert sorted(torchx("log", handle).stdout.splitlines()) == [
        "0: ['--out', '0.txt', '--lr', '0.1', '--step-size', '7'] s0",
        "1: ['--out', '1.txt', '--lr', '0.1', '--step-size', '8'] s1",
        "2: ['--out', '0.txt', '--lr=-2', '--step-size', '7'] s0",
        "3: ['--out', '1.txt', '--lr=-2', '--step-size', '8'] s1",
    ]


def test_results_are_sorted_and_the_best_runs_again(torchx: Torchx, tmp_path: Path) -> None:
    handle = submit(torchx, "--grid", "n=10,9,x,007", "--wait", "--", "echo", "n is", "{n}")

    def order(*options: str) -> list[str]:
        table = torchx("sweep", "results", handle, "-o", "csv", *options).stdout
        return [row["n"] for row in csv.DictReader(io.StringIO(table))]

    assert order() == ["10", "9", "x", "007"]
    assert order("--sort", "n") == ["007", "9", "10", "x"]
    assert order("--sort", "n:desc") == ["10", "9", "007", "x"]
    assert order("--best", "n:max") == ["10"]
    unknown = torchx("sweep", "results", handle, "--sort", "m")
    assert unknown.returncode == 2
    assert "--sort m: no element has this parameter or metric" in unknown.stderr
    rerun = torchx("rerun", handle, "--best", "n:max")
    assert rerun.returncode == 0, rerun.stderr
    assert rerun.stdout.startswith("local_cwd://")
    assert "element 0 is the best: n=10" in rerun.stderr
    assert "n is 10" in rerun.stderr
    none = torchx("rerun", handle, "--best", "state")
    assert none.returncode == 2


def test_parameters_in_json_are_numbers_if_all_are(torchx: Torchx) -> None:
    handle = submit(
        torchx, "--zip", "lr=1e-3,2", "n=7,8", "id=1,x", "--wait", "--", "true", "{lr}{n}{id}"
    )
    data = read_json(torchx("sweep", "results", handle, "--json").stdout)
    assert [row["parameters"] for row in data] == [
        {"lr": 0.001, "n": 7, "id": "1"},
        {"lr": 2, "n": 8, "id": "x"},
    ]


def test_a_sweep_of_a_module_and_of_a_command(torchx: Torchx) -> None:
    module = submit(torchx, "-m", "this", "--grid", "unused=1,2", "--wait")
    assert torchx("log", module).stdout.count("The Zen of Python") == 2
    handle = submit(torchx, "--grid", "n=1,2", "--wait", "--", "echo", "--n", "{n}")
    assert sorted(torchx("log", handle).stdout.splitlines()) == ["0: --n 1", "1: --n 2"]


def test_a_run_after_another_one_waits_in_the_background(torchx: Torchx, tmp_path: Path) -> None:
    go = tmp_path / "go"
    first = torchx("run", "--detach", "--", "sh", "-c", f"until [ -e {go} ]; do sleep 0.05; done")
    words = ["run", "--after", first.stdout.strip(), "--name", "then", "--env", "X=1"]
    later = torchx(*words, "--", "sh", "-c", "echo $X")
    assert later.returncode == 0, later.stderr
    handle = later.stdout.strip()
    assert handle.startswith("sweep://")
    assert "1 QUEUED" in torchx("status", handle).stdout
    refused = torchx(*words, "--log", "--", "true")
    assert refused.returncode == 2
    assert "--log: not with --after here" in refused.stderr
    go.touch()
    assert torchx("wait", handle).returncode == 0
    assert torchx("log", handle).stdout == "0: 1\n"


def test_a_run_after_an_ended_one_starts_at_once_or_is_refused(torchx: Torchx) -> None:
    failed = torchx("run", "--wait", "--", "false").stdout.strip()
    ran = torchx("run", "--after", failed, "--", "true")
    assert ran.returncode == 2
    assert f"--after {failed}:ok: this app is FAILED, so that the new app would nev" in ran.stderr
    ran = torchx("run", "--wait", "--after", f"{failed}:failed", "--", "true")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("local_cwd://")
    ran = torchx("run", "--after", "no-such-job", "--", "true")
    assert ran.returncode == 1


def test_clients_at_the_same_time_queue_each_failed_element_once(torchx: Torchx, out: Path) -> None:
    words = ["comp.py:train", "--out", str(out), "--code", "1", "--grid", "n=0:4", "--wait"]
    handle = torchx("sweep", *words).stdout.strip()
    clients = [
        subprocess.Popen(
            command("sweep", "rerun", "--failed", handle), stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    queued = [int(client.communicate(timeout=300)[0].split()[0]) for client in clients]
    assert wait(handle, timeout=300).counts == {ElementState.FAILED: 4}
    # A client may find elements that another client queued and that have failed again.
    assert sum(queued) >= 4
    attempts = sum(element.attempt for element in results(handle))
    assert attempts == sum(queued)
    assert len(numbers(out)) == 4 + attempts


def test_requests_that_the_scheduler_refuses_are_reported_with_their_elements(
    torchx: Torchx,
) -> None:
    words = ["--grid", "n=1,0,2,-1", "--grid", "msg=a,b"]
    ran = torchx("sweep", "comp.py:sized", *words)
    assert ran.returncode == 2
    assert "n=0, msg=a: " in ran.stderr
    assert "n=-1, msg=a: " in ran.stderr
    assert "n=1" not in ran.stderr
    assert "msg=b" not in ran.stderr  # its problem is that of msg=a
    assert read_json(torchx("sweep", "list", "--json").stdout) == []


def test_the_option_detach_does_not_remove_the_limits_of_this_machine(out: Path) -> None:
    with get_runner() as runner:
        words = ["comp.py:train", ["--out", str(out)], "local_cwd"]
        plain, detached = (
            plan(runner, *words, cfg, grid={"n": [1]}).record for cfg in ({}, {"detach": True})
        )
    assert detached.cfg == plain.cfg == {"detach": True}
    assert detached.limits == plain.limits
    assert set(plain.limits) == {"cpus", "gpus", "memMB"}


def test_the_log_goes_on_after_an_element_whose_log_was_deleted(torchx: Torchx, out: Path) -> None:
    words = ["comp.py:train", "--out", str(out), "--grid", "n=0:3", "--wait"]
    handle = torchx("sweep", *words).stdout.strip()
    with get_runner() as runner:
        folder = runner.describe_native(results(handle)[1].handle).request.log_dir
    Path(folder, "main", "1", "combined.log").unlink()
    Path(folder, "main", "1", "stdout.log").unlink()
    ran = torchx("sweep", "log", handle)
    assert ran.returncode == 0
    assert ran.stdout == "0: element 0 GPU=\n2: element 2 GPU=\n"
    assert "element 1 has no log" in ran.stderr


def test_prune_deletes_old_sweeps_and_their_apps(torchx: Torchx, out: Path) -> None:
    words = ["comp.py:train", "--out", str(out)]
    ended = submit(torchx, *words, "--grid", "n=0:2", "--wait")
    running = submit(torchx, *words, "--sleep", "60", "--grid", "n=5,6")
    app = results(ended)[0].handle
    assert torchx("sweep", "prune").stdout == ""
    for options in (["--dryrun"], []):
        assert torchx("status", app).returncode == 0
        pruned = torchx("sweep", "prune", "--older-than", "0s", *options)
        assert pruned.stdout.split() == [ended], pruned.stderr
    assert torchx("sweep", "status", ended).returncode == 1
    assert torchx("status", app).returncode == 1
    assert torchx("sweep", "cancel", running).returncode == 0
