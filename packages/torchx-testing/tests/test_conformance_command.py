"""Tests of ``torchx conformance`` with a fake scheduler, in another process; and of its reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree  # parses only a badge that the command wrote

from torchx_testing.site.report import badge, html_page

HERE = Path(__file__).parent

#: Runs several commands. A NUL ends the output of each on both streams; stdout has its code, too.
_PROGRAM = """
import json
import sys
from click import ClickException
import fake_scheduler
from torchx_specs.errors import TorchXError
from torchx_specs.hookspecs import SchedulerPlugin, hookimpl
from torchx_specs.plugins.manager import PluginManager, set_manager
from torchx_specs.options.run_options import runopts


class Plugin:
    @hookimpl
    def torchx_schedulers(self):
        def create(session_name, **params):
            scheduler = getattr(fake_scheduler, KIND)()
            opts = runopts()
            for name in ("queue", "api_token"):
                opts.add(name, type_=str, help=name)
            scheduler._run_opts = lambda: opts
            return scheduler

        yield SchedulerPlugin("fake", create)


KIND = sys.argv[1]
manager = PluginManager(discover=False)
manager.register(Plugin(), "fake")
set_manager(manager)
from torchx_testing.site.command import command
for arguments in json.loads(sys.argv[2]):
    try:
        code = command(arguments, standalone_mode=False) or 0
    except TorchXError as e:
        print(f"error: {e}", file=sys.stderr)
        code = e.exit_code
    except ClickException as e:
        e.show()
        code = e.exit_code
    except SystemExit as e:
        code = e.code
    print(end=f"\\0{code}\\0", flush=True)
    print(end="\\0", file=sys.stderr, flush=True)
"""


class Run(NamedTuple):
    code: int
    out: str
    err: str


def run_commands(folder: Path, kind: str, commands: list[list[str]]) -> list[Run]:
    commands = [words if "-s" in words else ["-s", "fake", *words] for words in commands]
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, kind, json.dumps(commands)],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]),
            "TORCHX_HOME": str(folder / "home"),
            "HOME": str(folder),
            "SITE_PASSWORD": "correct horse",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    out = done.stdout.split("\0")
    errors = done.stderr.split("\0")
    return [Run(int(out[2 * i + 1]), out[2 * i], errors[i]) for i in range(len(commands))]


def conformance(folder: Path, kind: str, *arguments: str) -> Run:
    return run_commands(folder, kind, [[*arguments]])[0]


def test_a_good_scheduler_passes_and_the_report_has_no_secret(tmp_path: Path) -> None:
    (tmp_path / ".torchxconfig").write_text("[fake]\nqueue = night\n")
    report = tmp_path / "a" / "report"
    arguments = ["-cfg", "api_token=tok-12345", "--report", str(report)]
    arguments += ["--unsupported", "since_until=no times: correct horse"]
    ran = conformance(
        tmp_path,
        "FakeScheduler",
        *arguments,
        "-k",
        "success or log_of_a_time or macros",
    )
    assert ran.code == 0, ran.out + ran.err
    data = json.loads((report / "report.json").read_text())
    assert data["summary"]["failed"] == 0
    assert data["summary"]["passed"] >= 2
    assert data["options"] == {"api_token": "***", "queue": "night"}
    assert data["unsupported"] == {"since_until": "no times: ***"}
    assert data["versions"]["torchx-testing"]
    [skipped] = [test for test in data["tests"] if test["outcome"] == "skipped"]
    assert skipped["reason"] == "declared unsupported: since_until: no times: ***"
    for name in ("report.json", "index.html", "badge.svg"):
        text = (report / name).read_text()
        assert "tok-12345" not in text
        assert "correct horse" not in text


def test_a_failure_is_in_the_report_and_in_the_exit_code(tmp_path: Path) -> None:
    select = "failure_and_its_code or success"
    ran = conformance(tmp_path, "LosesExitCode", "--report", "report", "-k", select)
    assert ran.code == 1, ran.out + ran.err
    assert "fake: 1 passed, 1 failed, 0 skipped" in ran.out
    data = json.loads((tmp_path / "report" / "report.json").read_text())
    [failed] = [test for test in data["tests"] if test["outcome"] == "failed"]
    assert failed["name"] == "test_failure_and_its_code"
    # pytest has rewritten the assertions of the suite, so the message shows both sides.
    assert "[None] == [3]" in failed["reason"]
    assert "\n" not in failed["reason"]


def test_exitfirst_stops_after_the_first_failed_test(tmp_path: Path) -> None:
    select = "failure_and_its_code or exit_code_of_a_list or success"
    ran = conformance(tmp_path, "LosesExitCode", "--report", "report", "-k", select, "-x")
    assert ran.code == 1, ran.out + ran.err
    data = json.loads((tmp_path / "report" / "report.json").read_text())
    assert [test["outcome"] for test in data["tests"]][-1] == "failed"
    assert data["summary"]["failed"] == 1


def test_features_that_the_scheduler_lacks_are_skipped(tmp_path: Path) -> None:
    select = "hostile_values or cancel_a_pending"
    declared = ["--unsupported", "hostile_arguments=an old shell"]
    own = ["--report", "own", "-k", select]
    site = [*declared, "--report", "site", "-k", select]
    runs = run_commands(tmp_path, "LacksValues", [own, site])
    assert [run.code for run in runs] == [0, 0], runs
    unsupported = json.loads((tmp_path / "own" / "report.json").read_text())["unsupported"]
    assert unsupported["hostile_arguments"] == "the fake quotes badly"
    assert unsupported["cancel_pending"] == "its jobs start at once"
    unsupported = json.loads((tmp_path / "site" / "report.json").read_text())["unsupported"]
    assert unsupported["hostile_arguments"] == "an old shell"


WRONG_REQUESTS = [
    (["-s", "fakt"], "fake"),
    (["-cfg", "que=x"], "queue"),
    (["--unsupported", "tial=x"], "did you mean 'tail'?"),
    (["--unsupported", "tail"], "the reason is missing; write tail=REASON"),
    (["-k", "no_such_test_at_all"], "no test was run; -k is 'no_such_test_at_all'"),
    (["-k", "("], "-k is '('"),
    (["-k", "closing_twice", "--report", "/proc/self/x"], "--report /proc/self/x: "),
]


def test_a_wrong_request_is_refused(tmp_path: Path) -> None:
    runs = run_commands(tmp_path, "FakeScheduler", [words for words, _ in WRONG_REQUESTS])
    found = [
        (run.code, message in run.err)
        for run, (_, message) in zip(runs, WRONG_REQUESTS, strict=True)
    ]
    assert found == [(2, True)] * len(WRONG_REQUESTS), runs


class _Checker(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_text_in_a_report_is_escaped() -> None:
    data = {
        "kind": "scheduler",
        "name": "a<b",
        "suite": "TestA",
        "started": "2026-01-01T00:00:00+00:00",
        "seconds": 1.0,
        "summary": {"passed": 0, "failed": 1, "skipped": 0},
        "options": {"q": "<script>"},
        "unsupported": {},
        "versions": {},
        "tests": [
            {"name": "t[<b>]", "outcome": "failed", "seconds": 0.1, "reason": "<script>&"},
        ],
    }
    checker = _Checker()
    checker.feed(html_page(data))
    assert checker.open == []
    assert "script" not in checker.tags
    image = ElementTree.fromstring(badge(data))  # noqa: S314
    assert "a<b" in "".join(image.itertext())
