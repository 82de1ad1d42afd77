"""Tests of the command as a process: imports, plugins, interrupts, completion, streams."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from patience import wait_for


class Site:
    """A folder with fake distributions that a new process sees as installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("TORCHX", "LOGLEVEL"))},
            "PYTHONPATH": self.path,
            "HOME": str(folder),
        }

    def distribution(self, name: str, code: str, version: str = "1.2") -> None:
        """Add a distribution whose plugin is a module with this code."""
        module = name.replace("-", "_")
        (self.folder / f"{module}.py").write_text(code)
        info = self.folder / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[torchx]\n{name} = {module}\n")

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "torchx_cli", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            cwd=self.folder,
            env=self.environment,
            **options,
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def python(self, code: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.environment,
        ).stdout


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


HOOKS = "from torchx_specs.hookspecs import *\nfrom torchx_specs.plugins.records import *\n"


# -- help, version and imports ---------------------------------------------------------------------


def test_no_arguments_print_help_and_exit_with_1(site: Site) -> None:
    alone, asked = site.run(), site.run("--help")
    assert (alone.returncode, asked.returncode) == (1, 0)
    assert alone.stdout == asked.stdout
    # Installed plugins, such as torchx-testing, may have longer names.
    assert re.search(r"^  status +Show the status of an app\.$", asked.stdout, re.M)


def test_version_is_printed(site: Site) -> None:
    from torchx_specs.version import __version__

    result = site.run("--version")
    assert (result.returncode, result.stdout) == (0, f"torchx-{__version__}\n")


@pytest.mark.parametrize("words", [["--help"], ["--version"], []])
def test_help_imports_nothing_heavy(site: Site, words: list[str]) -> None:
    heavy = ["rich", "yaml", "asyncio", "importlib.metadata", "torchx_runner.api", "difflib"]
    heavy += ["logging", "configparser", "json", "subprocess", "torchx_runner.components.finder"]
    heavy += ["torchx_sched_local.scheduler", "torchx_components.dist", "argparse"]
    code = (
        "import sys, click\nbefore = set(sys.modules)\n"  # what click imports does not count
        f"from torchx_cli.main import execute\nexecute({words!r})\n"
        f"commands = [m for m in sys.modules if m.startswith('torchx_cli.commands')]\n"
        f"print('LOADED', sorted(set({heavy!r}) & set(sys.modules) - before) + commands)"
    )
    if not words:  # the command sets up logging before it finds that no sub-command was given
        code = code.replace("'logging', ", "")
    assert site.python(code).splitlines()[-1] == "LOADED []"


def test_a_command_imports_its_own_module_only(site: Site) -> None:
    code = (
        "import sys\nfrom torchx_cli.main import execute\nexecute(['wait', '--help'])\n"
        "print(sorted(m for m in sys.modules if m.startswith('torchx_cli.commands.')),"
        " 'rich' in sys.modules, 'yaml' in sys.modules)"
    )
    assert site.python(code).splitlines()[-1] == (
        "['torchx_cli.commands.apps', 'torchx_cli.commands.apps.wait'] False False"
    )


def test_listing_schedulers_imports_no_backend(site: Site) -> None:
    site.distribution(
        "heavy-dist",
        HOOKS + "@hookimpl\ndef torchx_schedulers():\n"
        "    yield SchedulerPlugin('heavy', 'no_such_module:create')\n",
    )
    result = site.run("plugins", "--json")
    names = [s["name"] for s in json.loads(result.stdout)["schedulers"]]
    assert "heavy" in names
    result = site.run("runopts", "heavy")
    assert result.returncode == 2
    assert "scheduler 'heavy' of heavy_dist 1.2 cannot be loaded" in result.stderr


# -- levels of log messages ------------------------------------------------------------------------

LOGGING_PLUGIN = """
import logging

logger = logging.getLogger(__name__)

def work():
    logger.debug("debug of %s", __name__)
    logger.info("info of %s", __name__)
    logger.warning("warning of %s", __name__)
    logging.info("info of %s by the root logger", __name__)
"""


def test_libraries_log_warnings_and_plugins_log_info(tmp_path: Path) -> None:
    for name in ("site-packages", "project"):
        (tmp_path / name).mkdir()
    site = Site(tmp_path / "site-packages")
    site.distribution(
        "narrator",
        HOOKS
        + LOGGING_PLUGIN
        + """
import click, library, project_code

@click.command()
def narrate():
    for module in (work, library.work, project_code.work):
        module()

@hookimpl
def torchx_commands():
    yield CommandPlugin("narrate", narrate, "Narrates.")
""",
    )
    (site.folder / "library.py").write_text(LOGGING_PLUGIN)
    (tmp_path / "project" / "project_code.py").write_text(LOGGING_PLUGIN)
    site.environment["PYTHONPATH"] += f"{os.pathsep}{tmp_path / 'project'}"

    def said(*words: str) -> list[str]:
        lines = site.run(*words, "narrate").stderr.splitlines()
        return [line[36:] for line in lines if " of " in line]

    usual = [
        *("info of narrator", "warning of narrator", "warning of library"),
        *("info of project_code", "warning of project_code"),
        "info of project_code by the root logger",
    ]
    assert said() == usual
    assert said("--log_level", "INFO") == usual
    assert said("--debug") == usual
    assert said("--log_level", "WARNING") == [line for line in usual if "warning" in line]
    everything = said("--log_level", "DEBUG")
    assert {"debug of library", "info of library", "info of narrator by the root logger"} < set(
        everything
    )
    assert len(everything) == 12


# -- commands and problems of plugins --------------------------------------------------------------

COMMANDS = (
    HOOKS
    + """
import click

@click.command()
@click.option("--my_option", default="x")
def object_command(my_option):
    click.echo(f"object {my_option}")
    return 5

def make():
    @click.command()
    def made():
        raise RuntimeError("made to fail")
    return made

@hookimpl
def torchx_commands():
    yield CommandPlugin("obj", object_command, "An object.")
    yield CommandPlugin("text", "cmds:object_command", "By its name.")
    yield CommandPlugin("callable", make, lambda: "Asked for.")
    yield CommandPlugin("nonsense", lambda: 3, "Makes a number.")
"""
)


def test_plugin_adds_commands(site: Site) -> None:
    site.distribution("cmds", COMMANDS)
    shown = site.run("--help").stdout
    assert re.search(r"^  obj +An object\.$", shown, re.M)
    assert re.search(r"^  callable +Asked for\.$", shown, re.M)
    result = site.run("obj", "--my-option", "y")
    assert (result.returncode, result.stdout) == (0, "object y\n")
    assert site.run("text").stdout == "object x\n"
    result = site.run("callable")
    assert result.returncode == 3
    assert result.stderr == (
        "torchx: error: RuntimeError: made to fail (torchx --debug ... prints the traceback)\n"
    )
    result = site.run("nonsense")
    assert result.returncode == 2
    assert "command 'nonsense' of cmds 1.2 is not a click.Command: 3" in result.stderr


@pytest.mark.parametrize(
    ("code", "stage", "problem"),
    [
        ("raise ImportError('no luck')", "import", "ImportError: no luck"),
        ("import no_such_library", "import", "No module named 'no_such_library'"),
        ("def broken(:", "import", "SyntaxError"),
        (
            HOOKS + "@hookimpl\ndef torchx_commands():\n    raise KeyError('k')\n",
            "hook",
            "KeyError",
        ),
        (HOOKS + "@hookimpl\ndef torchx_commands(x):\n    return ()\n", "hook", "x"),
        (HOOKS + "@hookimpl\ndef torchx_commands():\n    return [1, None, 'x']\n", "record", "1"),
        (HOOKS + "@hookimpl\ndef torchx_commands():\n    return 7\n", "hook", "not iterable"),
        (
            HOOKS + "@hookimpl\ndef torchx_commands():\n    yield CommandPlugin('x', 'nowhere')\n",
            "record",
            "which is not 'module:attribute'",
        ),
    ],
)
def test_broken_plugin_leaves_other_commands_usable(
    site: Site, code: str, stage: str, problem: str
) -> None:
    site.distribution("broken-dist", code)
    result = site.run("--help")
    assert result.returncode == 0
    assert "  run " in result.stdout
    assert "plugin broken_dist 1.2" in result.stderr
    assert "Traceback" not in result.stderr
    result = site.run("plugins")
    assert result.returncode == 2
    assert "problems:" in result.stdout
    data = json.loads(site.run("plugins", "-o", "json").stdout)
    found = [p for p in data["problems"] if p["distribution"] == "broken_dist"]
    assert found[0]["stage"] == stage
    assert problem in " ".join(p["message"] for p in found)


TAKES = HOOKS + "@hookimpl{}\ndef torchx_commands():\n    yield CommandPlugin({!r}, {!r})\n"


def test_conflicting_name_is_an_error_only_where_it_is_used(site: Site) -> None:
    site.distribution("dist-a", TAKES.format("", "quota", "dist_a:a"))
    site.distribution("dist-b", TAKES.format("", "quota", "dist_b:b"))
    shown = site.run("--help")
    assert shown.returncode == 0
    line = r"^  quota +\(registered by several plugins: see torchx plugins\)$"
    assert re.search(line, shown.stdout, re.M)
    result = site.run("quota")
    assert result.returncode == 2
    assert "command 'quota' is given by dist_a 1.2 and dist_b 1.2: uninstall one" in result.stderr
    shown = site.run("plugins")
    assert shown.returncode == 2
    assert "no problems" not in shown.stdout
    data = json.loads(site.run("plugins", "--json").stdout)
    assert data["conflicts"] == [
        {"kind": "commands", "name": "quota", "claimed_by": ["dist_a 1.2", "dist_b 1.2"]}
    ]


def test_plugins_command_survives_a_conflict_about_its_name(site: Site) -> None:
    site.distribution("dist-a", TAKES.format("", "plugins", "dist_a:a"))
    result = site.run("plugins", "-o", "yaml")
    assert result.returncode == 2
    assert "name: plugins" in result.stdout


def test_disabling_one_record_keeps_the_others_of_its_plugin(site: Site) -> None:
    command = "import click\n@click.command()\ndef a():\n    click.echo('mine')\n"
    site.distribution("dist-a", TAKES.format("", "status", "dist_a:a") + command)
    result = site.run("status")
    assert result.returncode == 2
    assert "disable one with TORCHX_PLUGINS_DISABLED=dist_a:status, or mark" in result.stderr
    site.environment["TORCHX_PLUGINS_DISABLED"] = "torchx-cli:status"
    assert site.run("status").stdout == "mine\n"
    assert site.run("plugins").returncode == 0


def test_plugins_shows_a_deliberate_override(site: Site) -> None:
    site.distribution(
        "dist-a",
        TAKES.format("(tryfirst=True)", "list", "dist_a:command")
        + "import click\n@click.command()\ndef command():\n    click.echo('mine')\n",
    )
    assert site.run("list").stdout == "mine\n"
    data = json.loads(site.run("plugins", "--json").stdout)
    [override] = [o for o in data["overrides"] if o["name"] == "list"]
    assert override["by"] == "dist_a 1.2"
    assert override["hidden"][0].startswith("torchx_cli ")


def test_plugins_shows_which_plugin_replaces_a_generic_resource(site: Site) -> None:
    hook = (
        "@hookimpl\ndef torchx_named_resources():\n    yield ResourcePlugin('gpu.small', 'a:b')\n"
    )
    site.distribution("dist-a", HOOKS + hook)
    data = json.loads(site.run("plugins", "--json").stdout)
    [override] = [o for o in data["overrides"] if o["name"] == "gpu.small"]
    assert override["by"] == "dist_a 1.2"
    assert override["hidden"][0].startswith("torchx_specs ")


def test_plugins_shows_one_line_for_hundreds_of_resources(site: Site) -> None:
    gives = HOOKS + "@hookimpl\ndef torchx_named_resources():\n    for i in range({}):\n"
    gives += "        yield ResourcePlugin(f'{}.{{i}}', 'no_such_module:make')\n"
    site.distribution("cloud", gives.format(300, "big"))
    site.distribution("site-resources", gives.format(2, "gpu"))
    shown = site.run("plugins").stdout.splitlines()
    start = shown.index("named resources:")
    rows = [line.split(maxsplit=3) for line in shown[start + 4 :]]
    told = {row[0]: row[2:] for row in rows[: rows.index([])]}
    assert told["cloud"] == ["300", "big.0, big.1, big.10, … (all: torchx plugins -o json)"]
    assert told["site_resources"] == ["2", "gpu.0, gpu.1"]
    data = json.loads(site.run("plugins", "-o", "json").stdout)
    assert len([r for r in data["named_resources"] if r["distribution"] == "cloud"]) == 300


def install_torchx(folder: Path, name: str, version: str, ours: bool = False) -> None:
    """Install a distribution that has a module ``torchx`` (``ours``: the one of this project)."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"torchx/__init__.py,,\n{info.name}/METADATA,,\n")
    if ours:
        (info / "entry_points.txt").write_text("[torchx]\ntorchx = torchx.bridges.plugin\n")
    (folder / "torchx").mkdir(exist_ok=True)
    (folder / "torchx" / "__init__.py").touch()


def told_of_torchx(site: Site, *folders: Path) -> list[dict[str, str]]:
    site.environment["PYTHONPATH"] = os.pathsep.join(map(str, folders)) + os.pathsep + site.path
    problems = json.loads(site.run("plugins", "--json").stdout)["problems"]
    return [problem for problem in problems if problem["stage"] == "install"]


def test_second_torchx_in_another_folder_is_a_problem(site: Site) -> None:
    first, second = site.folder / "first", site.folder / "second"
    install_torchx(first, "torchx-nightly", "2026.1.1")
    install_torchx(second, "torchx", "1.0.0", ours=True)
    assert told_of_torchx(site, second) == []
    (told,) = told_of_torchx(site, first, second)
    assert told["distribution"] == "torchx-nightly"
    assert told["message"] == (
        "torchx-nightly 2026.1.1 and torchx 1.0.0 both install the module 'torchx', which is"
        f" imported from {first}; run: pip uninstall torchx-nightly; pip install --force-reinstall"
        " --no-deps torchx==1.0.0 torchx-cli==1.0.0"
    )
    assert "torchx-nightly 2026.1.1  install" in site.run("plugins").stdout
    (told,) = told_of_torchx(site, second, first)
    assert f"which is imported from {second}; run" in told["message"]


def test_upstream_torchx_instead_of_ours_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchx_cli.doctor.own_checks import conflicts
    from torchx_specs.version import __version__

    install_torchx(tmp_path, "torchx", "0.7.0")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    ((owner, problem, command),) = conflicts()
    assert owner[:2] == ("torchx", "0.7.0")
    assert problem == "the module 'torchx' is installed by torchx 0.7.0, not by TorchX anew"
    assert command == f"pip uninstall torchx; pip install torchx=={__version__}"


def test_second_torchx_in_the_same_folder_is_a_problem(site: Site) -> None:
    folder = site.folder / "both"
    install_torchx(folder, "torchx", "1.0.0", ours=True)
    install_torchx(folder, "torchx-nightly", "2026.1.1")
    (told,) = told_of_torchx(site, folder)
    assert f"which is imported from {folder}; run" in told["message"]


def test_plugins_are_blocked_by_variable_and_by_file(site: Site) -> None:
    site.distribution("cmds", COMMANDS)
    (site.folder / ".torchxconfig").write_text("[plugins]\ndisabled = cmds\n")
    assert "An object." not in site.run("--help").stdout
    assert site.run("obj").returncode == 2
    data = json.loads(site.run("plugins", "--json").stdout)
    [mine] = [d for d in data["distributions"] if d["distribution"] == "cmds"]
    assert mine["enabled"] is False
    (site.folder / ".torchxconfig").unlink()
    assert "An object." in site.run("--help").stdout
    site.environment["TORCHX_PLUGINS_DISABLED"] = "cmds"
    assert "An object." not in site.run("--help").stdout


# -- interrupts, with a scheduler whose apps end on request -----------------------------

TOY = (
    HOOKS
    + '''
import os, re, time
from torchx_specs import AppDryRunInfo, AppState
from torchx_specs.schedulers import DescribeAppResponse, Scheduler
from torchx_specs.schedulers.features import SchedulerFeatures

STATE = os.path.join(os.path.dirname(__file__), "state")

def state(new=None):
    if new:
        with open(STATE + "~", "w") as fp:
            fp.write(new)
        os.replace(STATE + "~", STATE)
    with open(STATE) as fp:
        return fp.read()

class Toy(Scheduler):
    """Runs nothing: a file contains the state of its only app."""

    features = SchedulerFeatures(logs=True, kill=True)

    def _submit_dryrun(self, app, cfg):
        return AppDryRunInfo("request", str)

    def schedule(self, info):
        state("RUNNING")
        self.roles = info.app.roles
        return "app"

    def describe(self, app_id):
        return DescribeAppResponse(app_id, AppState[state()], roles=getattr(self, "roles", []))

    def list(self, cfg=None):
        return []

    def _cancel_existing(self, app_id):
        if not os.environ.get("STUBBORN"):
            state("CANCELLED")

    def kill(self, app_id):
        state("FAILED")

    def log_iter(self, app_id, role_name, k=0, regex=None, *args, **kwargs):
        lines = self.lines(k)
        return (line for line in lines if not regex or re.search(regex, line))

    def lines(self, k):
        yield f"one {k}\\n"
        if os.path.exists(STATE + ".log"):
            with open(STATE + ".log", encoding="utf-8") as fp:
                yield from fp
        while state() == "RUNNING":
            time.sleep(0.02)
        yield "end"

class ClientToy(Toy):
    features = SchedulerFeatures(logs=True, kill=True, client_jobs=True)

    def lives_in_client(self, cfg):
        return True

@hookimpl
def torchx_schedulers():
    yield SchedulerPlugin("client_toy", lambda name, **kw: ClientToy("toy", name))
    yield SchedulerPlugin("local_toy", lambda name, **kw: Toy("toy", name))
'''
)
JOB = """
name: job
roles:
  - {name: r, image: "", entrypoint: x, num_replicas: 2, resource: {cpu: 1, gpu: 0, memMB: 1}}
"""


@pytest.fixture
def toy(site: Site) -> Site:
    site.distribution("toy", TOY)
    (site.folder / "job.yaml").write_text(JOB)
    return site


def started(process: subprocess.Popen[str], text: str = "one 1") -> str:
    """Return the standard error of a process up to the line that contains ``text``."""
    assert process.stderr is not None
    said = ""
    while text not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return said


def state(site: Site, new: str = "") -> str:
    path = site.folder / "state"
    if new:
        path.write_text(new)
    return path.read_text()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupt_cancels_an_app_of_the_client_and_waits_for_its_end(
    toy: Site, number: signal.Signals, code: int
) -> None:
    process = toy.start("run", "-s", "client_toy", "job.yaml")
    said = started(process)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == code
    assert out == "client_toy://torchx/app\n"
    assert state(toy) == "CANCELLED"
    assert "cancelling client_toy://torchx/app" in err
    assert "job finished: CANCELLED" in err
    assert "Traceback" not in said + err


# A scheduler and a handler of events that wait for a signal at the point that the variable POINT
# names: before the announcement of the app, after it, or after the submission.
PAUSES = (
    TOY
    + """
import logging, sys, time
from torchx_kit.jobs.submission import announce

def pause(point):
    if os.environ.get("POINT") == point:
        print("pausing", file=sys.__stderr__, flush=True)
        # signal.pause() would wait for ever if the signal arrived before the call.
        while True:
            time.sleep(0.05)

class Pausing(Toy):
    def schedule(self, info):
        pause("before")
        announce("mark")
        pause("announced")
        return super().schedule(info)

class Events(logging.Handler):
    def emit(self, record):
        if '"api": "schedule"' in record.getMessage():
            pause("returned")

@hookimpl
def torchx_event_handlers():
    yield EventHandlerPlugin("null", Events)
"""
).replace("lambda name, **kw: Toy", "lambda name, **kw: Pausing")


@pytest.mark.parametrize(
    ("point", "handle"),
    [
        ("before", None),
        ("announced", "local_toy://torchx/mark"),
        ("returned", "local_toy://torchx/app"),
    ],
)
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)]
)
def test_interrupt_of_a_submission_prints_the_handle_of_an_app_that_may_run(
    site: Site, number: signal.Signals, code: int, point: str, handle: str | None
) -> None:
    site.distribution("toy", PAUSES)
    (site.folder / "job.yaml").write_text(JOB)
    site.environment["POINT"] = point
    process = site.start("run", "-s", "local_toy", "job.yaml")
    started(process, "pausing")
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (code, "")
    assert re.findall(r"submission of (\S+) was interrupted, and the app may run", err) == (
        [handle] if handle else []
    )
    submissions = json.loads(site.run("history", "--json").stdout)
    assert [one["handle"] for one in submissions] == ([handle] if handle else [])


def test_second_interrupt_kills_the_app_and_does_not_wait(toy: Site) -> None:
    toy.environment["STUBBORN"] = "1"
    process = toy.start("run", "-s", "client_toy", "job.yaml")
    started(process)
    process.send_signal(signal.SIGINT)
    started(process, "cancelling")
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "killing client_toy://torchx/app" in err
    assert state(toy) == "FAILED"


def test_interrupt_leaves_an_app_alone_that_does_not_live_in_the_client(
    toy: Site,
) -> None:
    process = toy.start("run", "--log", "-s", "local_toy", "job.yaml")
    started(process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "local_toy://torchx/app continues; run 'torchx cancel local_toy://torchx/app'" in err
    assert state(toy) == "RUNNING"


def test_interrupt_of_wait_says_what_continues(toy: Site) -> None:
    process = toy.start("run", "--log", "-s", "local_toy", "job.yaml")
    started(process)
    waiting = toy.start("wait", "local_toy://torchx/app")
    started(waiting, "RUNNING")
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=120)
    assert waiting.returncode == 130
    assert "local_toy://torchx/app continues" in err
    assert state(toy) == "RUNNING"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)


def test_run_shows_logs_to_their_end(toy: Site) -> None:
    process = toy.start("run", "-s", "client_toy", "job.yaml")
    said = started(process)
    state(toy, "SUCCEEDED")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert out == "client_toy://torchx/app\n"
    shown = said + err
    assert shown.count("r/0 end\n") == shown.count("r/1 end\n") == 1
    assert shown.index("r/0 end") < shown.index("job finished: SUCCEEDED")


def test_detach_returns_at_once(toy: Site) -> None:
    result = toy.run("run", "--detach", "-s", "client_toy", "job.yaml")
    assert (result.returncode, result.stdout) == (0, "client_toy://torchx/app\n")
    assert state(toy) == "RUNNING"


def test_interrupt_ends_a_followed_log(toy: Site) -> None:
    state_file = toy.folder / "state"
    state_file.write_text("RUNNING")
    process = toy.start("log", "-t", "local_toy://torchx/app/r/0")
    assert process.stdout is not None
    # In this process, the toy scheduler does not know the app's roles. It still reads the log of a
    # role that is named.
    assert process.stdout.readline() == "r/0 one 0\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in err


@pytest.mark.parametrize("follow", [(), ("-t",)])
def test_interrupt_ends_a_search_that_needs_exponential_time(
    toy: Site, follow: tuple[str, ...]
) -> None:
    (toy.folder / "state").write_text("SUCCEEDED")
    (toy.folder / "state.log").write_text("a" * 60 + "!\n")
    regex = "one|(a+)+$"
    process = toy.start("log", *follow, "--regex", regex, "local_toy://torchx/app/r/0-1")
    # The command uses two seconds of processor time only if it searches.
    wait_for(lambda: process.poll() is not None or cpu_seconds(process.pid) >= 2)
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process of this machine (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_closed_pipe_ends_the_command_quietly(toy: Site) -> None:
    (toy.folder / "state").write_text("SUCCEEDED")
    for words in (["--help"], ["runopts"], ["log", "local_toy://torchx/app/r/0-50"]):
        reader, writer = os.pipe()
        os.close(reader)
        process = subprocess.run(
            [sys.executable, "-m", "torchx_cli", *words],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            cwd=toy.folder,
            env=toy.environment,
            check=False,
        )
        os.close(writer)
        assert (process.returncode, process.stderr) == (141, ""), words


# -- completion ------------------------------------------------------------------------------------


def complete(site: Site, line: str, shell: str = "bash") -> list[str]:
    """Return the completions of a line with the cursor at its end, each after its kind."""
    words = line.split(" ")
    variables = {"COMP_LINE": f"torchx {line}", "_TORCHX_WORDBREAKS": " \t:="}
    code = "import sys; sys.argv[0] = 'torchx'; from torchx_cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *([] if shell == "bash" else words)],
        check=False,
        capture_output=True,
        text=True,
        cwd=site.folder,
        env={**site.environment, **variables, "_TORCHX_COMPLETE": shell},
    )
    assert done.stderr == ""
    return [" ".join(row.split("\t")[:2]).strip() for row in done.stdout.splitlines()]


def test_completion_of_commands_options_and_schedulers(toy: Site) -> None:
    assert complete(toy, "st") == ["word status"]
    assert "word --parent_run_id" in complete(toy, "run --par")
    assert complete(toy, "run -s local_t") == ["word local_toy"]
    assert complete(toy, "run --scheduler=local_t", "zsh") == ["word --scheduler=local_toy"]
    assert complete(toy, "run --scheduler=local_t") == ["word local_toy"]  # bash splits at "="
    assert complete(toy, "runopts client") == ["word client_toy"]
    assert complete(toy, "wait --until runn") == ["word running"]
    assert complete(toy, "list --state RUNNING,FA") == ["word RUNNING,FAILED"]
    assert complete(toy, "plugins n") == ["word new"]
    assert complete(toy, "run --workspace x") == ["dirs x"]


def test_completion_offers_nothing_that_would_be_refused(toy: Site) -> None:
    assert complete(toy, "run -s local_toy --schedu") == ["word --scheduler_args"]
    assert complete(toy, "run a.b --") == ["word --help"]
    assert complete(toy, "run -s") == ["word -s"]
    assert complete(toy, "nosuch --") == []
    assert "word --debug" in complete(toy, "--de")
    assert "word --debug" not in complete(toy, "run --de")


def test_completion_of_components(toy: Site) -> None:
    (toy.folder / "my_components.py").write_text(
        "from torchx_specs import AppDef\nimport a_module_that_is_missing\n"
        "def train() -> AppDef:\n    '''Trains.'''\n    return AppDef('x')\n"
        "def helper() -> int:\n    return 1\n"
    )
    toy.distribution(
        "comps",
        HOOKS + "@hookimpl\ndef torchx_components():\n"
        "    yield ComponentPlugin('acme', 'my_components')\n",
    )
    assert complete(toy, "run acme.tr") == ["word acme.train", "open acme.tr"]
    assert complete(toy, "run acme.train acme.") == []


def test_completion_of_a_profile_and_of_sections(toy: Site) -> None:
    (toy.folder / ".torchxconfig").write_text("[profile.big.local_toy]\nx = 1\n[cli:run]\n")
    assert complete(toy, "--profile b") == ["word big"]
    assert complete(toy, "--profile big st") == ["word status"]
    assert complete(toy, "config show --origin local") == ["word local_toy"]


def test_completion_of_handles_asks_the_given_scheduler_if_the_journal_has_no_app(
    cli: Any, plugin: Any
) -> None:
    import click

    from torchx_cli.completion.values import complete_apps

    plugin.add("app-7", "train")
    argument = click.Argument(["app_handle"])

    def found(text: str) -> list[str]:
        ctx = click.Context(click.Command("status"))
        return [str(item.value) for item in complete_apps(ctx, argument, text)]

    assert found("fake://tor") == ["fake://torchx/app-7"]
    assert found("fake://other") == []
    assert found("nosuch://") == []
    assert found("tra") == []


def test_completion_of_quoted_lines(toy: Site) -> None:
    assert complete(toy, "run '-s' \"local_t") == ["word local_toy"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_printed(site: Site, shell: str) -> None:
    site.environment["_TORCHX_COMPLETE"] = f"{shell}_source"
    result = site.run()
    assert result.returncode == 0
    assert "_torchx_completion" in result.stdout
    site.environment["_TORCHX_COMPLETE"] = "tcsh_source"
    refused = site.run()
    assert refused.returncode == 2
    assert "use bash_source, zsh_source or fish_source" in refused.stderr


# -- the command called by another program ---------------------------------------------------------


def test_group_works_in_the_runner_of_click(plugin: Any) -> None:
    from torchx_cli.main import torchx

    result = CliRunner().invoke(torchx, ["list", "-s", "fake"])
    assert result.exit_code == 0
    assert result.stdout.startswith("APP ")


def test_run_command_runs_one_command_without_the_group(
    plugin: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from torchx_cli.commands.apps.list import command
    from torchx_cli.main import main, run_command

    assert run_command(command, ["-s", "fake", "--output=json"]) == 0
    assert capsys.readouterr().out == "[]\n"
    assert run_command(command, ["-s", "fak"]) == 2
    assert "did you mean 'fake'?" in capsys.readouterr().err
    main(["list", "-s", "fake"])
    with pytest.raises(SystemExit) as exit_info:
        main(["list", "-s", "fak"])
    assert exit_info.value.code == 2


# -- standard streams, and the end of the process --------------------------------------------------

NO_UNICODE = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
TEXT = "h\u00e9\u00e9 \u65e5\u672c"


def test_text_outside_the_locale_is_escaped(toy: Site) -> None:
    toy.environment.update(NO_UNICODE)
    (toy.folder / "state").write_text("SUCCEEDED")
    (toy.folder / "state.log").write_text(f"{TEXT}\n", encoding="utf-8")
    (toy.folder / "job.yaml").write_text(JOB.replace("x,", f"{TEXT},"), encoding="utf-8")
    log = toy.run("log", "local_toy://torchx/app/r/0")
    escaped = TEXT.encode("ascii", "backslashreplace").decode()
    assert (log.returncode, log.stderr) == (0, "")
    assert log.stdout == f"r/0 one 0\nr/0 {escaped}\nr/0 end\n"
    shown = toy.run("run", "-s", "client_toy", "--dryrun", "job.yaml")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert escaped in shown.stdout


@pytest.mark.parametrize("output_format", ["json", "yaml"])
def test_documents_are_utf8_in_every_locale(toy: Site, output_format: str) -> None:
    import yaml

    toy.environment.update(NO_UNICODE)
    job = JOB.replace("x,", f"{TEXT},").encode("utf-8")
    words = f"run -s client_toy --workspace= --dryrun -o {output_format} -".split()
    ran = subprocess.run(
        [sys.executable, "-m", "torchx_cli", *words],
        input=job,
        capture_output=True,
        cwd=toy.folder,
        env=toy.environment,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    found = yaml.safe_load(ran.stdout.decode("utf-8"))
    [role] = (found["app"] if output_format == "json" else found)["roles"]
    assert role["entrypoint"] == TEXT


def test_standard_input_that_is_not_utf8_is_an_error(toy: Site) -> None:
    for words in (["run", "-s", "client_toy", "-"], ["run", "--stdin"]):
        ran = subprocess.run(
            [sys.executable, "-m", "torchx_cli", *words],
            input=b"name: \xff",
            capture_output=True,
            cwd=toy.folder,
            env=toy.environment,
            timeout=60,
        )
        assert ran.returncode == 2
        assert b"not UTF-8 text (invalid start byte at byte 6)" in ran.stderr


@pytest.mark.parametrize("closed", ["1", "2", "1 2", "0 1 2"])
def test_closed_streams_are_not_an_error(toy: Site, closed: str) -> None:
    closing = " ".join(f"{fd}>&-" if fd != "0" else "0<&-" for fd in closed.split())
    ran = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m torchx_cli list -s client_toy {closing}"],
        capture_output=True,
        text=True,
        cwd=toy.folder,
        env=toy.environment,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ("APP HANDLE" in ran.stdout) == ("1" not in closed)


def test_deleted_working_directory_is_an_error(toy: Site) -> None:
    gone = toy.folder / "gone"

    def run(words: str) -> subprocess.CompletedProcess[str]:
        gone.mkdir()
        script = f"cd {gone}; rmdir {gone}; exec {sys.executable} -m torchx_cli {words}"
        return subprocess.run(
            ["sh", "-c", script], capture_output=True, text=True, env=toy.environment, timeout=60
        )

    assert run("list -s client_toy").returncode == 0
    refused = run("run -s client_toy no.component")
    assert refused.returncode == 2
    assert refused.stderr == (
        "torchx: error: the working directory was deleted; change to another directory\n"
    )


def test_the_start_of_a_command_does_not_collect_garbage() -> None:
    code = (
        "import gc, sys\n"
        "from torchx_cli.__main__ import main\n"
        "collections = []\n"
        "gc.collect()\n"
        "gc.callbacks.append(lambda phase, info: collections.append(phase))\n"
        "sys.argv[1:] = ['--help']\n"
        "main()\n"
        "print(collections)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_process_ends_without_a_collection_of_garbage() -> None:
    code = (
        "import gc, torchx_cli.main\n"
        "class Noted:\n"
        "    def __del__(self): print('collected', flush=True)\n"
        "gc.disable()\n"
        "noted = Noted()\n"
        "noted.itself = noted\n"
        "del noted\n"
        "torchx_cli.main.main(['--version'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "collected" not in done.stdout
