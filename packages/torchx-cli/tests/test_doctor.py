"""Tests of ``torchx doctor``: checks by plugins, its own checks, time limits, exit codes."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchx_cli.doctor import own_checks
from torchx_kit.checks import on_this_machine, query_seconds
from torchx_specs.hookspecs import CheckPlugin, CheckResult, CommandPlugin, hookimpl
from torchx_specs.plugins.manager import get_manager
from torchx_specs.plugins.records import Origin

#: The command, with a time limit that is long enough for a busy machine.
DOCTOR = ("doctor", "--timeout", "60s")


class Checks:
    """Registers the checks that a test adds."""

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}
        self.options: dict[str, Any] = {}
        self.release = threading.Event()

    def add(self, name: str, *results: Any) -> None:
        self.results[name] = results

    @hookimpl
    def torchx_checks(self) -> Iterator[CheckPlugin]:
        for name, results in self.results.items():

            def check(cfg: Any, name: str = name, results: Any = results) -> Iterator[Any]:
                self.options[name] = dict(cfg)
                for result in results:
                    if isinstance(result, BaseException):
                        raise result
                    if result == "hang":
                        self.release.wait()
                    yield result

            yield CheckPlugin(name, check)


@pytest.fixture
def checks(plugin: Any) -> Iterator[Checks]:
    found = Checks()
    get_manager().register(found, "checks", Origin("acme-checks", "1.0", "checks"))
    yield found
    found.release.set()


@pytest.fixture(autouse=True)
def _this_python_is_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_checks, "_NEWEST", max(own_checks._NEWEST, sys.version_info[:2]))


def report(result: Any) -> list[tuple[str, str, str]]:
    return [(row["subject"], row["level"], row["message"]) for row in json.loads(result.out)]


def test_a_good_installation_has_exit_code_0(cli: Any, plugin: Any) -> None:
    result = cli(*DOCTOR, "-o", "json")
    assert result.code == 0
    rows = report(result)
    assert [subject for subject, _, _ in rows] == ["torchx"] * 4 + ["fake"]
    assert {level for _, level, _ in rows} == {"ok"}
    assert rows[0][2].endswith(f"in {sys.prefix}")
    assert rows[-1] == ("fake", "ok", "the scheduler can be loaded; it has no other checks")
    assert all(row["remedy"] is None for row in json.loads(result.out))


def test_results_have_one_line_and_a_remedy(cli: Any, checks: Checks) -> None:
    checks.add("fake:server", CheckResult("warning", "slow\nserver \x1b[2J", "wait a little"))
    result = cli(*DOCTOR, "-s", "fake")
    assert result.code == 0
    lines = result.out.splitlines()
    at = lines.index("fake")
    assert lines[at + 1 : at + 3] == [
        "  warning  slow server \\u001b[2J",
        "           remedy: wait a little",
    ]
    assert lines[-1] == "0 errors, 1 warning"


def test_an_error_of_a_scheduler_in_use_is_exit_code_3(cli: Any, checks: Checks) -> None:
    checks.add("fake:server", CheckResult("error", "down", "start it"))
    assert cli(*DOCTOR, "-s", "fake").code == 3
    unused = cli(*DOCTOR)
    assert unused.code == 0
    assert "fake (not in use)\n  warning  down" in unused.out
    Path(".torchxconfig").write_text("[fake]\nqueue = q\n")
    assert cli(*DOCTOR).code == 3
    assert checks.options["fake:server"] == {"queue": "q"}


def test_an_error_of_another_subject_is_exit_code_2(cli: Any, checks: Checks) -> None:
    checks.add("registry:login", CheckResult("error", "no login", "log in"))
    assert cli(*DOCTOR).code == 2
    assert cli(*DOCTOR, "-s", "fake").code == 0


def test_a_broken_check_is_one_line_and_the_others_go_on(cli: Any, checks: Checks) -> None:
    checks.add("fake:a", CheckResult("ok", "first"), KeyError("x"))
    checks.add("fake:b", SystemExit(3))
    checks.add("fake:c", "text", CheckResult("great", "m"))
    checks.add("fake:d", CheckResult("ok", "last"))
    result = cli(*DOCTOR, "-s", "fake", "-o", "json")
    assert result.code == 3
    rows = [(level, message) for subject, level, message in report(result) if subject == "fake"]
    assert rows[0] == ("ok", "first")
    assert rows[1] == ("error", "the check 'fake:a' of acme-checks 1.0 failed: KeyError: 'x'")
    assert rows[2] == ("error", "the check 'fake:b' of acme-checks 1.0 failed: SystemExit: 3")
    assert "it yielded 'text', which is not a valid CheckResult" in rows[3][1]
    assert "level='great'" in rows[4][1]
    assert rows[5] == ("ok", "last")


def test_a_check_that_hangs_ends_at_the_limit_and_keeps_its_results(
    cli: Any, checks: Checks
) -> None:
    checks.add("fake:slow", CheckResult("ok", "reached"), "hang")
    checks.add("fake:quick", CheckResult("ok", "quick"))
    result = cli("doctor", "-s", "fake", "--timeout", "5s", "-o", "json")
    rows = [(level, message) for subject, level, message in report(result) if subject == "fake"]
    assert rows == [
        ("ok", "reached"),
        ("error", "the check 'fake:slow' did not end within 5 s"),
        ("ok", "quick"),
    ]


def test_a_busy_machine_gets_more_time_and_no_advice_on_the_network(
    cli: Any, checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("os.getloadavg", lambda: (6.0, 0.0, 0.0))
    assert (on_this_machine(5), query_seconds()) == (15, 13.5)
    monkeypatch.setattr("os.getloadavg", lambda: (0.5, 0.0, 0.0))
    assert (on_this_machine(5), query_seconds()) == (5, 4.5)

    checks.add("torchx:slow", "hang")
    checks.add("fake:slow", "hang")
    data = json.loads(cli("doctor", "-s", "fake", "--timeout", "5s", "-o", "json").out)
    ends = {row["subject"]: row for row in data if ":slow" in row["message"]}
    assert ends["torchx"]["level"] == "warning"
    assert ends["torchx"]["remedy"] == "give a longer --timeout"
    assert ends["fake"]["level"] == "error"
    assert "check the network" in ends["fake"]["remedy"]


def test_secrets_in_results_are_masked(cli: Any, checks: Checks) -> None:
    checks.add("fake:a", CheckResult("ok", "at https://me:s3cret@host/"))
    assert "s3cret" not in cli(*DOCTOR, "-s", "fake").out


def test_an_unknown_scheduler_is_one_line(cli: Any, plugin: Any) -> None:
    result = cli(*DOCTOR, "-s", "fak")
    assert result.code == 2
    assert "did you mean 'fake'?" in result.error


def test_a_scheduler_that_cannot_be_loaded_is_an_error(cli: Any, plugin: Any) -> None:
    def fails(session_name: str, **params: Any) -> Any:
        raise RuntimeError("no library")

    plugin.create = fails
    result = cli(*DOCTOR, "-s", "fake")
    assert result.code == 3
    assert "scheduler 'fake' of fake-dist 2.0 cannot be created: RuntimeError: no library" in (
        result.out
    )


def test_broken_plugins_and_conflicts_are_errors(cli: Any, plugin: Any) -> None:
    class Other:
        @hookimpl
        def torchx_commands(self) -> Iterator[CommandPlugin]:
            yield CommandPlugin("list", "other:command")
            raise KeyError("k")

    get_manager().register(Other(), "other", Origin("other-dist", "3.0", "other"))
    result = cli(*DOCTOR, "-o", "json")
    assert result.code == 2
    rows = json.loads(result.out)
    errors = {row["message"]: row["remedy"] for row in rows if row["level"] == "error"}
    assert errors == {
        "plugin other-dist 3.0 (other) failed in a hook: torchx_commands: KeyError: 'k'": (
            "upgrade or uninstall other-dist, or set TORCHX_PLUGINS_DISABLED=other-dist"
        ),
        "command 'list' is given by other-dist 3.0 and torchx-cli 1": (
            "uninstall one, or disable one with TORCHX_PLUGINS_DISABLED=other-dist:list, or mark"
            " the wanted one @hookimpl(tryfirst=True)"
        ),
    }


def test_versions_that_do_not_fit_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, requires in {
        "acme-plugin": ["acme-lib>=2,<3", "acme-none>=1", "acme-extra; extra == 'x'"],
        "acme-lib": ["acme-lib-none; python_version < '3'"],
    }.items():
        info = tmp_path / f"{name.replace('-', '_')}-1.5.dist-info"
        info.mkdir()
        lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5"]
        lines += [f"Requires-Dist: {text}" for text in requires]
        (info / "METADATA").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = dict(own_checks.unmet_requirements(["acme-plugin", "acme-lib", "acme-missing"]))
    assert found == {
        "acme-plugin needs acme-lib<3,>=2, and 1.5 is installed": "acme-lib<3,>=2",
        "acme-plugin needs acme-none>=1, which is not installed": "acme-none>=1",
    }


CONFIG = """[fake]
queu = a
queue = b
[fak]
x = 1
[cli:lis]
scheduler = fake
[cli:list]
schedular = fake
[cli:run]
component = a.b
[resources.big]
cpu = many
[profile.big.fake]
qeue = c
[log_sinks]
s3 = s3://bucket
"""


def test_problems_of_configuration_files_are_found_in_all_sections(cli: Any, plugin: Any) -> None:
    Path(".torchxconfig").write_text(CONFIG)
    result = cli(*DOCTOR, "-o", "json")
    assert result.code == 2
    path = Path(".torchxconfig").absolute()
    rows = [row for row in report(result) if row[0] == "torchx" and row[1] != "ok"]
    assert [(level, message.removeprefix(f"{path}")) for _, level, message in rows] == [
        ("warning", ": [fake] queu: unknown option, ignored; did you mean 'queue'?"),
        ("warning", ": [fak]: there is no scheduler of this name; did you mean 'fake'?"),
        ("warning", ": [cli:lis]: there is no command 'lis'"),
        (
            "warning",
            ": [cli:list] schedular: torchx list has no such option; did you mean 'scheduler'?",
        ),
        ("error", ":13: [resources.big] cpu: 'many' is not a whole number of at least 1"),
        ("warning", ": [profile.big.fake] qeue: unknown option, ignored; did you mean 'queue'?"),
    ]


def test_unknown_sections_and_empty_sinks_are_warnings(cli: Any, plugin: Any) -> None:
    Path(".torchxconfig").write_text(
        "[log_sinks]\nkeep =\n[log_sinks:keep]\n[trackers:x]\n[tracker]\n[torchx:trackers]\n"
        "[resource.big]\n[tracker:mine]\n[log_sink:a]\n[notifier:b]\n[notifiers:c]\n[acme:x]\n[acme]\n"
    )
    result = cli(*DOCTOR, "-o", "json")
    assert result.code == 0
    assert [
        message.partition(": [")[2] for _, level, message in report(result) if level != "ok"
    ] == [
        "log_sinks]: no sink; add one: keep = file:///data/logs",
        *(
            f"{section}]: there is no section of this name; did you mean '{form}'?"
            for section, form in (
                ("log_sinks:keep", "log_sink:NAME"),
                ("trackers:x", "tracker:NAME"),
                ("tracker", "tracker:NAME"),
                ("torchx:trackers", "torchx:tracker"),
                ("resource.big", "resources.NAME"),
            )
        ),
    ]


def test_all_invalid_values_of_a_section_are_found(cli: Any, plugin: Any) -> None:
    Path(".torchxconfig").write_text(
        "[fake]\nproject = #FIXME: str\nqueue = #FIXME: str\nEnd = A\nend = B\nqueu = x\n"
    )
    result = cli(*DOCTOR, "-o", "json")
    assert result.code == 2
    rows = [row for row in report(result) if row[0] == "torchx" and row[1] != "ok"]
    found = [(level, message.partition(": [fake] ")[2]) for _, level, message in rows]
    unset = "still has the placeholder '#FIXME: str'; give a value, or remove the key"
    assert found == [
        ("error", f"project: {unset}"),
        ("error", f"queue: {unset}"),
        ("error", "end: conflicts with 'End', another spelling of the same option"),
        ("warning", "queu: unknown option, ignored; did you mean 'queue'?"),
    ]


def test_a_malformed_file_and_an_unknown_profile_are_errors(
    cli: Any, plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(".torchxconfig").write_text("[fake\n")
    result = cli(*DOCTOR)
    assert result.code == 2
    assert ".torchxconfig:1: a [section] ends with a bracket" in result.out
    Path(".torchxconfig").write_text("[profile.big.fake]\nqueue = a\n")
    result = cli("--profile", "bgi", *DOCTOR)
    assert result.code == 2
    assert "unknown profile 'bgi'; did you mean 'big'?" in result.out
    monkeypatch.setenv("TORCHXCONFIG", "/no/such/file")
    result = cli(*DOCTOR)
    assert result.code == 2
    assert "TORCHXCONFIG=/no/such/file: no such file" in result.out
