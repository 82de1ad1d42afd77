"""Tests of ``.torchxconfig``: look-up, values, errors, sections, blocked plugins, writing."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Any

import pytest

from torchx_runner import get_runner
from torchx_runner.config import api as config
from torchx_runner.config.files import parse_config
from torchx_specs import CfgVal, ConfigError, UnknownSchedulerException, runopts
from torchx_specs.hookspecs import SchedulerPlugin
from torchx_specs.plugins.manager import get_manager


@pytest.fixture(autouse=True)
def _installed(plugins: Any, fake_scheduler_class: Any) -> None:
    plugins.add("torchx_schedulers", SchedulerPlugin("fake", fake_scheduler_class))


def write(folder: Path, text: str) -> Path:
    path = folder / ".torchxconfig"
    path.write_text(text)
    return path


def applied(text: str, cwd: Path, **given: CfgVal) -> dict[str, CfgVal]:
    write(cwd, text)
    cfg = dict(given)
    config.apply("fake", cfg)
    return cfg


# -- finding the files


def test_home_wins_over_the_working_directory_key_by_key(home: Path, cwd: Path) -> None:
    first = write(home, "[fake]\nqueue = home\n")
    second = write(cwd, "[fake]\nqueue = cwd\npriority = 1\n")
    assert config.find_configs() == [str(first), str(second)]
    cfg: dict[str, CfgVal] = {}
    config.apply("fake", cfg)
    assert cfg == {"queue": "home", "priority": 1}


def test_folders_are_looked_up_at_each_call(
    tmp_path: Path, cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cwd, "")
    assert len(config.find_configs()) == 1
    monkeypatch.chdir(tmp_path)
    assert config.find_configs() == []
    assert os.getcwd() in config.DEFAULT_CONFIG_DIRS


def test_constant_of_folders_can_be_replaced(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, "")
    monkeypatch.setattr(config, "DEFAULT_CONFIG_DIRS", [])
    assert config.find_configs() == []
    path = write(tmp_path, "")
    monkeypatch.setattr(config, "DEFAULT_CONFIG_DIRS", [str(tmp_path)])
    assert config.find_configs() == [str(path)]
    monkeypatch.undo()
    assert "DEFAULT_CONFIG_DIRS" not in vars(config)


def test_home_that_is_the_working_directory_is_read_once(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    write(home, "")
    assert len(config.find_configs()) == 1


def test_given_folders_are_searched(tmp_path: Path, cwd: Path) -> None:
    write(cwd, "[fake]\nqueue = cwd\n")
    other = write(tmp_path, "[fake]\nqueue = other\n")
    assert config.find_configs([str(tmp_path)]) == [str(other)]
    cfg: dict[str, CfgVal] = {}
    config.apply("fake", cfg, dirs=[str(tmp_path), str(cwd)])
    assert cfg == {"queue": "other"}


def test_variable_names_the_only_file(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, "[fake]\nqueue = home\n")
    own = tmp_path / "own.ini"
    own.write_text("[fake]\npriority = 2\n")
    monkeypatch.setenv("TORCHXCONFIG", str(own))
    assert config.find_configs() == config.find_configs(["/ignored"]) == [str(own)]
    cfg: dict[str, CfgVal] = {}
    config.apply("fake", cfg)
    assert cfg == {"priority": 2}
    monkeypatch.setenv("TORCHXCONFIG", "")
    assert config.find_configs() == []


def test_variable_naming_a_missing_file_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHXCONFIG", "/no/such/file")
    with pytest.raises(ConfigError, match="TORCHXCONFIG=/no/such/file: no such file") as e:
        config.find_configs()
    assert isinstance(e.value, FileNotFoundError)
    assert str(e.value).count("TORCHXCONFIG") == 1


def test_folder_named_torchxconfig_is_ignored(cwd: Path, caplog: pytest.LogCaptureFixture) -> None:
    (cwd / ".torchxconfig").mkdir()
    assert config.find_configs() == []
    assert config.find_configs() == []
    assert caplog.text.count("not a readable file") == 1


def test_changed_file_is_read_again(cwd: Path) -> None:
    assert applied("[fake]\nqueue = a\n", cwd) == {"queue": "a"}
    assert applied("[fake]\nqueue = longer\n", cwd) == {"queue": "longer"}


# -- values of options


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("queue = a b", {"queue": "a b"}),
        ("queue: a", {"queue": "a"}),
        ("queue = None", {"queue": None}),
        ("queue = none", {"queue": "none"}),
        ("queue =", {"queue": ""}),
        ("queue = # not a comment", {"queue": "# not a comment"}),
        ("priority = 3", {"priority": 3}),
        ("priority = None", {"priority": None}),
        ("job_tags = a;b", {"job_tags": ["a", "b"]}),
        ("job_tags = a,b", {"job_tags": ["a", "b"]}),
        ("jobTags = a", {"job_tags": ["a"]}),
        ("jobTags = a\njob_tags = a", {"job_tags": ["a"]}),
        ("# queue = a\n; queue = b", {}),
    ],
)
def test_values_are_converted_to_the_types_of_options(
    cwd: Path, line: str, expected: dict[str, CfgVal]
) -> None:
    assert applied(f"[fake]\n{line}\n", cwd) == expected


def test_given_option_wins_in_either_spelling(cwd: Path) -> None:
    text = "[fake]\njob_tags = file\nqueue = file\n"
    assert applied(text, cwd, jobTags=["given"], queue=None) == {
        "jobTags": ["given"],
        "queue": None,
    }


PERCENT = {
    "a bare one": ("50%", "50%"),
    "a date": ("%Y-%m-%d", "%Y-%m-%d"),
    "doubled, as older files have it": ("100%% of %%Y", "100% of %Y"),
    "a reference": ("%(base)s/x", "/data/x"),
    "a reference to a reference": ("%(nested)s!", "/data/n!"),
    "a reference to nothing": ("%(nothing)s", "%(nothing)s"),
    "a log format": ("%(message)s %d", "%(message)s %d"),
    "a doubled reference": ("%%(base)s", "%(base)s"),
}


@pytest.mark.parametrize(("text", "expected"), PERCENT.values(), ids=PERCENT)
def test_percent_signs_are_expanded_or_kept(cwd: Path, text: str, expected: str) -> None:
    defaults = "[DEFAULT]\nbase = /data\nnested = %(base)s/n\n"
    assert applied(f"{defaults}[fake]\nqueue = {text}\n", cwd)["queue"] == expected


def test_circular_references_end(cwd: Path) -> None:
    assert "%" in str(applied("[fake]\nqueue = %(queue)s\n", cwd)["queue"])


def test_unknown_key_in_the_default_section_is_not_a_warning(
    cwd: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert applied("[DEFAULT]\nbase = /data\n[fake]\npriority = 1\n", cwd) == {"priority": 1}
    assert caplog.text == ""


def test_an_unknown_option_is_a_warning(cwd: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert applied("[fake]\nquue = a\npriority = 1\n", cwd) == {"priority": 1}
    [message] = caplog.messages
    assert message == (
        f"{cwd}/.torchxconfig: [fake] quue: unknown option, ignored; did you mean 'queue'?"
    )
    caplog.clear()
    assert applied("[fake]\nzzz = a\n", cwd) == {}
    assert caplog.messages == [f"{cwd}/.torchxconfig: [fake] zzz: unknown option, ignored"]


def test_many_unknown_options_are_few_warnings(cwd: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = "".join(f"zz{n} = 1\n" for n in range(10_000))
    assert applied(f"[fake]\n{keys}priority = 1\n", cwd) == {"priority": 1}
    assert len(caplog.messages) == 11
    assert caplog.messages[-1] == f"{cwd}/.torchxconfig: [fake] has 9990 more unknown options"


# -- errors in files


WRONG = {
    "a value": ("[fake]\npriority = high\n", "[fake] priority: `high` is not a valid int"),
    "a placeholder": (
        "[fake]\nqueue = #FIXME:(str) where to\n",
        "[fake] queue: still has the placeholder '#FIXME:(str) where to'",
    ),
    "two spellings": (
        "[fake]\njob_tags = a\njobTags = b\n",
        "[fake] jobTags: conflicts with 'job_tags'",
    ),
    "no section": ("queue = a\n", ":1: expected a [section] before the first key, got: queue = a"),
    "a section without its end": ("[fake\n", ":1: a [section] ends with a bracket, got: [fake"),
    "a key twice": ("[fake]\nqueue = a\nqueue = b\n", ":3: key 'queue' is given twice in [fake]"),
    "a section twice": ("[fake]\n[x]\n[fake]\n", ":3: section [fake] is given twice"),
    "no value": ("[fake]\nqueue = a\nnothing\n", ":3: expected key = value, got: nothing"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_problem_is_one_line_with_file_and_place(cwd: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        applied(text, cwd)
    told = str(error.value)
    assert told.startswith(f"{cwd}/.torchxconfig:")
    assert message in told
    assert "\n" not in told


def test_wrong_value_that_is_overridden_is_not_an_error(cwd: Path) -> None:
    assert applied("[fake]\npriority = high\n", cwd, priority=1) == {"priority": 1}
    assert applied("[other]\nx = #FIXME:(str)\n", cwd) == {}


def test_file_that_is_not_utf8_is_an_error(cwd: Path) -> None:
    (cwd / ".torchxconfig").write_bytes(b"[fake]\nqueue = ok\npriority = \xff\n")
    with pytest.raises(ConfigError, match=r"\.torchxconfig:3: not UTF-8 text"):
        config.get_configs("cli", "run")


def test_byte_order_mark_is_ignored(cwd: Path) -> None:
    assert applied("\ufeff[fake]\nqueue = a\n", cwd) == {"queue": "a"}
    cfg: dict[str, CfgVal] = {}
    config.load("fake", io.StringIO("\ufeff[fake]\nqueue = a\n"), cfg)
    assert cfg == {"queue": "a"}


def test_apply_for_an_unknown_scheduler_is_an_error() -> None:
    with pytest.raises(UnknownSchedulerException, match="did you mean 'fake'"):
        config.apply("fke", {})


def test_apply_with_given_options_creates_no_scheduler(cwd: Path) -> None:
    opts = runopts()
    opts.add("n", type_=int, help="h")
    write(cwd, "[absent]\nn = 4\n")
    cfg: dict[str, CfgVal] = {}
    config.apply("absent", cfg, opts=opts)
    assert cfg == {"n": 4}


def test_load_reads_one_open_file() -> None:
    cfg: dict[str, CfgVal] = {"queue": "given"}
    config.load("fake", io.StringIO("[fake]\nqueue = a\npriority = 2\n"), cfg)
    assert cfg == {"queue": "given", "priority": 2}
    config.load("fake", io.StringIO("[other]\nqueue = a\n"), cfg)
    with pytest.raises(ConfigError, match="<configuration>:1"):
        config.load("fake", io.StringIO("rubbish"), cfg)


# -- sections of other subjects than schedulers


def test_sections_by_prefix_are_merged(home: Path, cwd: Path) -> None:
    write(
        home, "[component:dist.ddp]\nj = 1x2\n[component:]\na = 1\n[:x]\nb = 2\n[component]\nc=3\n"
    )
    write(
        cwd,
        "[component:dist.ddp]\nj = 9x9\nscript = a.py\n"
        "[component:./train.py:trainer]\nCamelKey = 1\n[components:x]\na = 1\n",
    )
    assert config.load_sections("component") == {
        "dist.ddp": {"j": "1x2", "script": "a.py"},
        "./train.py:trainer": {"CamelKey": "1"},
    }
    assert config.get_configs("component", "dist.ddp") == {"j": "1x2", "script": "a.py"}
    assert config.get_configs("component", "none") == {}
    assert config.get_config("component", "dist.ddp", "script") == "a.py"
    assert config.get_config("component", "dist.ddp", "none") is None


def test_merging_does_not_change_the_cached_files(home: Path, cwd: Path) -> None:
    write(home, "[cli:run]\na = 1\n")
    write(cwd, "[cli:run]\nb = 2\n")
    config.get_cli_defaults("run")["c"] = "3"
    assert config.get_cli_defaults("run") == {"a": "1", "b": "2"}


def test_defaults_of_a_command_are_its_section(cwd: Path) -> None:
    write(cwd, "[cli:run]\nscheduler = local_cwd\nwait = true\n[cli:log]\ntail = true\n")
    assert config.get_cli_defaults("run") == {"scheduler": "local_cwd", "wait": "true"}
    assert config.get_cli_defaults("log") == {"tail": "true"}
    assert config.get_cli_defaults("list") == {}


def test_list_values_names_the_file_of_each_value(home: Path, cwd: Path) -> None:
    first = str(write(home, "[fake]\nqueue = home\n"))
    second = str(write(cwd, "[fake]\nqueue = cwd\npriority = 1\n[cli:run]\nwait = true\n"))
    assert config.list_values() == [
        ("fake", "queue", "home", first, True, ""),
        ("fake", "queue", "cwd", second, False, ""),
        ("fake", "priority", "1", second, True, ""),
        ("cli:run", "wait", "true", second, True, ""),
    ]


# -- plugins that must not load


def test_names_of_disabled_plugins_are_a_list_with_quotes_and_lines(cwd: Path) -> None:
    write(cwd, "[plugins]\ndisabled = \"acme-torchx\", 'x' ,\n  other-sched,\n")
    assert config.get_disabled_plugins() == ["acme-torchx", "x", "other-sched"]


def test_plugins_are_blocked_by_the_configuration(
    plugins: Any, home: Path, cwd: Path, fake_scheduler_class: Any
) -> None:
    record = SchedulerPlugin("other", fake_scheduler_class)
    plugins.add("torchx_schedulers", record, distribution="Other_Sched")
    assert get_runner().scheduler_backends() == ["other", "fake"]
    plugins = type(plugins)()
    plugins.add("torchx_schedulers", record, distribution="Other_Sched")
    plugins.add("torchx_schedulers", record, distribution="kept")
    write(home, "[plugins]\ndisabled = nobody\n")
    write(cwd, "[plugins]\ndisabled = x, other-sched\n")
    assert config.get_disabled_plugins() == ["nobody", "x", "other-sched"]
    assert get_runner().scheduler_backends() == ["other"]
    assert get_manager().schedulers()["other"].origin.distribution == "kept"


def test_malformed_file_does_not_affect_given_schedulers(cwd: Path, runner: Any, app: Any) -> None:
    handle = runner.run(app, "fake")
    write(cwd, "rubbish")
    assert runner.status(handle) is not None


# -- writing and reading a file of options


class Options:
    """A mixin that gives the fake scheduler options of every type."""

    def _run_opts(self) -> runopts:
        opts = runopts()
        opts.add("cluster", type_=str, required=True, help="which cluster\n" + "and why " * 20)
        opts.add("tags", type_=list[str], required=True, help="tags")
        opts.add("text", type_=str, default="50% of %%", help="h")
        opts.add("empty", type_=str, default="", help="h")
        opts.add("lines", type_=str, default="a\nb", help="h")
        opts.add("nothing", type_=int, help="h")
        opts.add("number", type_=float, default=0.5, help="h")
        opts.add("flag", type_=bool, default=False, help="h")
        opts.add("names", type_=list[str], default=["a", "b"], help="h")
        opts.add("none", type_=list[str], default=[], help="h")
        opts.add("pairs", type_=dict[str, str], default={"a": "1", "b": "2"}, help="h")
        return opts


@pytest.fixture
def several(plugins: Any, fake_scheduler_class: Any) -> None:
    full = type("Full", (Options, fake_scheduler_class), {})
    plugins.add(
        "torchx_schedulers",
        SchedulerPlugin("full", full),
        SchedulerPlugin("absent", "no.such.module:create"),
        distribution="full",
    )


@pytest.mark.usefixtures("several")
def test_dump_writes_all_options() -> None:
    out = io.StringIO()
    config.dump(out, ["full", "fake"])
    placeholder = "#FIXME:(str) which cluster and why and why and why and why and why"[:60] + "..."
    assert out.getvalue() == (
        f"[full]\ncluster = {placeholder}\ntags = #FIXME:(list) tags\n"
        "text = 50%% of %%%%\nempty = \nlines = a\n\tb\nnothing = None\nnumber = 0.5\n"
        "flag = False\nnames = a;b\nnone = None\npairs = a:1;b:2\n\n"
        "[fake]\nqueue = default\npriority = None\njob_tags = None\n\n"
    )


@pytest.mark.usefixtures("several")
def test_dumped_file_is_read_as_the_defaults(cwd: Path) -> None:
    out = io.StringIO()
    config.dump(out, ["full"])
    text = out.getvalue().replace("#FIXME:(str)", "").replace("#FIXME:(list)", "")
    write(cwd, text)
    cfg: dict[str, CfgVal] = {}
    config.apply("full", cfg)
    defaults = {key: opt.default for key, opt in Options()._run_opts() if not opt.is_required}
    defaults["none"] = None
    assert {key: cfg[key] for key in defaults} == defaults


@pytest.mark.usefixtures("several")
def test_dump_of_required_options_only() -> None:
    out = io.StringIO()
    config.dump(out, ["full", "fake"], required_only=True)
    assert [line.partition(" ")[0] for line in out.getvalue().splitlines()] == [
        "[full]",
        "cluster",
        "tags",
        "",
        "[fake]",
        "",
    ]


@pytest.mark.usefixtures("several")
def test_dump_skips_schedulers_that_cannot_be_loaded(caplog: pytest.LogCaptureFixture) -> None:
    out = io.StringIO()
    config.dump(out)
    assert [ln for ln in out.getvalue().splitlines() if ln[:1] == "["] == ["[full]", "[fake]"]
    assert "scheduler 'absent' of full 1.0 cannot be loaded" in caplog.text


def test_dump_of_an_unknown_scheduler_writes_nothing() -> None:
    out = io.StringIO()
    with pytest.raises(UnknownSchedulerException):
        config.dump(out, ["fake", "nope"])
    assert out.getvalue() == ""


def test_documented_file_is_valid(cwd: Path) -> None:
    import inspect

    text = inspect.getdoc(config) or ""
    (example,) = re.findall(r"::\n\n((?:    .*\n|\n)+)", text)
    write(cwd, inspect.cleandoc(example))
    assert config.get_cli_defaults("run") == {"scheduler": "kubernetes"}
    assert config.plugin_sections("tracker") == {
        "fsspec": {"type": "fsspec", "config": "/data/trackers.conf"},
        "mine": {"type": "my_package.tracker:create"},
    }
    assert list(config.plugin_sections("notifier")) == ["desktop"]
    assert list(config.plugin_sections("log_sink")) == ["disk"]
    assert config.get_disabled_plugins() == ["acme-torchx"]


def test_parse_config_names_its_source() -> None:
    with pytest.raises(ConfigError, match=r"^somewhere:1: "):
        parse_config("rubbish", "somewhere")
