"""Tests of the commands, with a scheduler whose apps are in memory."""

from __future__ import annotations

import io
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import torchx_kit.plugin
from torchx_cli.output import app_data
from torchx_specs import AppState
from torchx_specs.formats import serialize
from torchx_specs.hookspecs import CommandPlugin
from torchx_specs.schedulers import Stream

HANDLE = "fake://torchx/job-0"
MISSING = "fake://torchx/gone"


# -- torchx run ------------------------------------------------------------------------------------


def test_run_prints_the_handle_alone_on_standard_output(cli: Any, components: str) -> None:
    result = cli("run", "comp.py:job")
    assert (result.code, result.out) == (0, f"{HANDLE}\n")
    assert "launched app: fake://torchx/job-0" in result.err
    assert "PENDING" in result.err


def test_run_waits_with_the_flag(cli: Any, components: str) -> None:
    result = cli("run", "--wait", "comp.py:job")
    assert (result.code, result.out) == (0, f"{HANDLE}\n")
    assert "job finished: SUCCEEDED" in result.err
    assert "hello" not in result.err


def test_run_shows_logs_with_the_flag(cli: Any, components: str) -> None:
    result = cli("run", "--log", "comp.py:job", "--replicas", "2")
    assert (result.code, result.out) == (0, f"{HANDLE}\n")
    assert "main/0 hello from 0\n" in result.err
    assert "main/1 hello from 1\n" in result.err


def test_app_that_lives_in_the_client_is_waited_for(cli: Any, plugin: Any, components: str) -> None:
    plugin.in_client = True
    result = cli("run", "comp.py:job")
    assert (result.code, result.out) == (0, f"{HANDLE}\n")
    assert "main/0 hello from 0\n" in result.err
    assert "job finished: SUCCEEDED" in result.err


def test_the_name_of_a_scheduler_does_not_make_the_command_wait(
    cli: Any, plugin: Any, components: str
) -> None:
    plugin.schedulers = ["local_fake"]
    result = cli("run", "comp.py:job")
    assert (result.code, result.out) == (0, "local_fake://torchx/job-0\n")
    assert "job finished" not in result.err


def test_no_wait_is_a_warning_if_the_app_lives_in_the_client(
    cli: Any, plugin: Any, components: str
) -> None:
    warning = "--no-wait: an app of scheduler fake ends with this command, which waits for it"
    assert warning not in cli("run", "--no-wait", "comp.py:job").err
    plugin.in_client = True
    assert warning in cli("run", "--no-wait", "comp.py:job").err
    assert warning not in cli("run", "comp.py:job").err
    assert warning not in cli("run", "--no-wait", "--detach", "comp.py:job").err


def test_failed_job_is_exit_code_1(cli: Any, components: str) -> None:
    result = cli("run", "--wait", "-cfg", "end=FAILED", "comp.py:job")
    assert (result.code, result.out) == (1, f"{HANDLE}\n")
    assert "job finished: FAILED: main/0" in result.err
    assert cli("run", "--wait", "-cfg=end=CANCELLED", "comp.py:job").code == 1


def test_run_prints_json(cli: Any, components: str) -> None:
    result = cli("run", "--json", "--wait", "-cfg", "end=FAILED", "comp.py:job")
    assert result.code == 1
    assert json.loads(result.out) == {
        "handle": HANDLE,
        "app_id": "job-0",
        "scheduler": "fake",
        "state": "FAILED",
        "ui_url": None,
    }
    result = cli("run", "-o", "yaml", "comp.py:job")
    assert yaml.safe_load(result.out)["state"] == "PENDING"


def test_output_of_a_component_goes_to_standard_error(cli: Any, components: str) -> None:
    loud = (
        Path(components)
        .read_text()
        .replace("    role = Role(", "    print('loud')\n    role = Role(")
    )
    Path("loud.py").write_text(f"print('imported')\n{loud}")
    for words in (["--dryrun", "-o", "json"], ["-o", "json"], ["--dryrun", "-o", "yaml"]):
        result = cli("run", *words, "loud.py:job")
        assert isinstance(yaml.safe_load(result.out), dict)
        assert "loud" in result.err
    assert cli("run", "loud.py:job").out.startswith("fake://")
    assert "imported" not in cli("run", "loud.py:job", "--help").out


def test_dryrun_prints_app_and_request_without_submitting(
    cli: Any, plugin: Any, components: str
) -> None:
    result = cli("run", "--dryrun", "comp.py:job")
    assert result.code == 0
    assert result.out.startswith("\n=== APPLICATION ===\n{ 'metadata': {},\n  'name': 'job',\n")
    assert result.out.endswith("\n\n=== SCHEDULER REQUEST ===\nsubmit job\n")
    assert plugin.apps == {}


def test_secrets_are_masked_in_text_and_kept_in_documents(cli: Any, plugin: Any) -> None:
    env = {"HF_TOKEN": "hush", "STORE": "s3://me:hush@host/x", "LEVEL": "loud"}
    resource = {"cpu": 1, "gpu": 0, "memMB": 1}
    role = {"name": "main", "image": "i", "entrypoint": "x", "env": env, "resource": resource}
    Path("job.json").write_text(json.dumps({"name": "job", "roles": [role]}))
    assert cli("run", "job.json").code == 0
    for words in (["run", "--dryrun", "job.json"], ["describe", HANDLE]):
        read = cli(*words).out
        assert "hush" not in read
        assert "'HF_TOKEN': '***'" in read
        assert "'STORE': 's3://me:***@host/x'" in read
        assert "'LEVEL': 'loud'" in read
        again = serialize.from_yaml(cli(*words[:1], "-o", "yaml", *words[1:]).out)
        assert again.roles[0].env.items() >= env.items()


def test_dryrun_prints_json(cli: Any, components: str) -> None:
    data = json.loads(cli("run", "--dryrun", "--json", "comp.py:job").out)
    assert list(data) == ["scheduler", "cfg", "app", "request"]
    assert data["request"] == {"name": "job", "size": 1}
    assert data["cfg"]["project"] == "none"
    assert data["app"]["roles"][0]["workspace"] == {"projects": {str(Path.cwd()): ""}}
    assert data["app"]["roles"][0]["retry_policy"] == "APPLICATION"


def test_yaml_of_a_dry_run_can_be_run(cli: Any, plugin: Any, components: str) -> None:
    printed = cli("run", "--dryrun", "-o", "yaml", "comp.py:job", "--name", "again").out
    assert "# submit again\n" in printed
    Path("job.yaml").write_text(printed)
    assert cli("run", "--dryrun", "-o", "yaml", "job.yaml").out == printed
    assert cli("run", "job.yaml").code == 0
    ran = plugin.apps["again-0"].app
    assert ran.roles[0].args == ["hi"]
    assert ran.roles[0].workspace.projects == {str(Path.cwd()): ""}


def test_app_is_read_from_json_or_standard_input(
    cli: Any, plugin: Any, components: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("run", "comp.py:job")
    app = plugin.apps["job-0"].app
    Path("job.json").write_text(serialize.to_json(app))
    assert cli("run", "job.json").code == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(serialize.to_yaml(app)))
    assert cli("run", "-").code == 0
    assert [fake.app.name for fake in plugin.apps.values()] == ["job"] * 3


def test_workspace_is_the_working_directory_by_default(cli: Any, components: str) -> None:
    def workspace(*words: str) -> Any:
        data = json.loads(cli("run", "--dryrun", "--json", *words, "comp.py:job").out)
        return data["app"]["roles"][0]["workspace"]

    assert workspace() == {"projects": {str(Path.cwd()): ""}}
    assert workspace("--workspace", "/elsewhere") == {"projects": {"/elsewhere": ""}}
    assert workspace("--workspace={/a: b, /c: d}") == {"projects": {"/a": "b", "/c": "d"}}
    assert workspace("--workspace", "") is None


def test_cfg_may_be_repeated(cli: Any, plugin: Any, components: str) -> None:
    words = ["-cfg", "queue=a", "--scheduler_args", "tags=x;y", "--scheduler-args=project=p"]
    cli("run", *words, "-cfg=queue=a", "comp.py:job")
    cfg = plugin.apps["job-0"].cfg
    assert (cfg["queue"], cfg["tags"], cfg["project"]) == ("a", ["x", "y"], "p")


def test_files_supply_missing_scheduler_options(cli: Any, plugin: Any, components: str) -> None:
    Path(".torchxconfig").write_text("[fake]\nqueue = filed\nproject = filed\n")
    cli("run", "-cfg", "queue=given", "comp.py:job")
    cfg = plugin.apps["job-0"].cfg
    assert (cfg["queue"], cfg["project"]) == ("given", "filed")


def test_arguments_reach_the_component_unchanged(cli: Any, plugin: Any) -> None:
    Path("c.py").write_text(
        "from torchx_specs import AppDef, Resource, Role\n"
        "def sh(*args: str) -> AppDef:\n"
        "    role = Role('r', image='', entrypoint='sh', args=list(args))\n"
        "    role.resource = Resource(1, 0, 1)\n"
        "    return AppDef('job', roles=[role])\n"
    )
    words = ["echo", "-n", "a", "-n", "--dryrun", "-cfg", "x=y", "", "$HOME"]
    for before in ([], ["--"]):
        assert cli("run", *before, "c.py:sh", "--", *words).code == 0
    assert [fake.app.roles[0].args for fake in plugin.apps.values()] == [words, words]


def test_component_is_taken_from_the_configuration(cli: Any, plugin: Any, components: str) -> None:
    Path(".torchxconfig").write_text(
        "[cli:run]\ncomponent = comp.py:job\n\n[component:comp.py:job]\nname = configured\n"
    )
    assert cli("run").code == 0
    assert cli("run", "--", "--replicas", "3").code == 0
    assert [(f.app.name, f.app.roles[0].num_replicas) for f in plugin.apps.values()] == [
        ("configured", 1),
        ("configured", 3),
    ]


def test_flags_of_a_plugins_command_can_be_configured(cli: Any, plugin: Any) -> None:
    @click.command("audit")
    @click.option("--report", required=True)
    @click.option("--level", type=int, default=1)
    def audit(report: str, level: int) -> None:
        click.echo(f"{report} {level}")

    plugin.commands.append(CommandPlugin("audit", audit))
    assert cli("audit").code == 2
    Path(".torchxconfig").write_text("[cli:audit]\nreport = here\nlevel = 3\nlevle = 4\n")
    given = cli("audit", "--level", "5")
    assert (given.code, given.out) == (0, "here 5\n")
    assert "[cli:audit] levle: torchx audit has no such option; did you mean 'level'?" in given.err
    assert cli("audit").out == "here 3\n"


def test_every_flag_can_be_configured(cli: Any, plugin: Any, components: str) -> None:
    Path(".torchxconfig").write_text(
        "[cli:run]\nscheduler = fake\nwait = true\noutput = json\ncfg = queue=conf\n"
        "workspace = /conf\nparent_run_id = p\n[cli:list]\no = json\n"
    )
    plugin.schedulers = ["fake", "other"]
    result = cli("run", "comp.py:job")
    assert json.loads(result.out)["state"] == "SUCCEEDED"
    fake = plugin.apps["job-0"]
    assert fake.cfg["queue"] == "conf"
    assert fake.app.roles[0].workspace.projects == {"/conf": ""}
    assert fake.app.roles[0].env["TORCHX_PARENT_RUN_ID"] == "p"
    # options on the command line win
    result = cli("run", "--no-wait", "-o", "table", "--cfg", "queue=typed", "comp.py:job")
    assert result.out == "fake://torchx/job-1\n"
    assert plugin.apps["job-1"].cfg["queue"] == "typed"
    assert json.loads(cli("list", "-s", "fake").out)[1]["handle"] == HANDLE


def test_unknown_configured_flag_is_a_warning(cli: Any, components: str) -> None:
    Path(".torchxconfig").write_text("[cli:run]\ndryrunn = true\n")
    result = cli("run", "comp.py:job")
    assert result.code == 0
    assert "[cli:run] dryrunn: torchx run has no such option; did you mean 'dryrun'?" in result.err
    Path(".torchxconfig").write_text("[cli:cancel]\nzzz = true\n[cli:wait]\nzzz = 1\n")
    told = cli("wait", "fake://torchx/job-0").err
    assert (
        "[cli:wait] zzz: torchx wait has no such option; options: json, output, timeout, until"
        in told
    )


def test_several_schedulers_without_a_default_are_an_error(
    cli: Any, plugin: Any, components: str
) -> None:
    plugin.schedulers = ["fake", "other"]
    result = cli("run", "comp.py:job")
    assert result.code == 2
    assert result.error == "which scheduler? give -s with one of: fake, other"


@pytest.mark.parametrize(
    ("installable", "hint"), [({}, ""), ({"local_cwd": "pip install x"}, "; run: pip install x")]
)
def test_no_installed_scheduler_is_an_error_with_the_command_that_installs_one(
    installable: dict[str, str], hint: str, cli: Any, plugin: Any, components: str
) -> None:
    plugin.schedulers, plugin.installable = [], installable
    assert cli("run", "comp.py:job").error == f"no scheduler is installed{hint}"


def test_local_cwd_is_the_default_scheduler(cli: Any, plugin: Any, components: str) -> None:
    plugin.schedulers = ["aaa", "local_cwd", "zzz"]
    assert cli("run", "comp.py:job").out == "local_cwd://torchx/job-0\n"


def test_help_of_a_component_lists_its_arguments(cli: Any, plugin: Any, components: str) -> None:
    result = cli("run", "comp.py:job", "--help")
    assert (result.code, result.err, plugin.apps) == (0, "", {})
    assert result.out.startswith("usage: torchx run comp.py:job ")
    assert "Print a greeting." in result.out
    assert "Number of replicas. (default: 1)" in result.out


def stdin_json(**changes: Any) -> str:
    base = {"component_name": "comp.py:job", "scheduler": "fake", "scheduler_args": {}}
    return json.dumps({k: v for k, v in {**base, **changes}.items() if v != "absent"})


def test_run_is_read_as_json_from_standard_input(
    cli: Any, plugin: Any, components: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(text: str, *words: str) -> Any:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        return cli("run", "--stdin", *words)

    text = stdin_json(
        scheduler_args={"queue": "q", "tags": ["a", 1]},
        component_args={"name": "typed", "replicas": 2},
        wait=True,
    )
    result = run(text)
    assert result.code == 0
    assert "job finished: SUCCEEDED" in result.err
    fake = plugin.apps["typed-0"]
    assert fake.app.roles[0].num_replicas == 2
    assert fake.cfg["tags"] == ["a", "1"]
    assert fake.app.roles[0].workspace.projects == {str(Path.cwd()): ""}
    run(stdin_json(component_args={"name": "x"}, component_args_str=["--name", "worded"]))
    assert "worded-1" in plugin.apps
    result = run(stdin_json(), "--dryrun", "--json")
    assert json.loads(result.out)["scheduler"] == "fake"
    assert len(plugin.apps) == 2


def test_configured_flags_do_not_conflict_with_stdin(
    cli: Any, components: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(".torchxconfig").write_text("[cli:run]\nscheduler = other\nwait = true\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(stdin_json()))
    assert cli("run", "--stdin").out == f"{HANDLE}\n"


@pytest.mark.parametrize(
    ("text", "words", "error"),
    [
        ("", (), "standard input: not valid JSON"),
        ("[1]", (), "standard input: expected a JSON object, got list"),
        ("{}", (), "required field 'component_name' is missing"),
        (stdin_json(scheduler_args="absent"), (), "required field 'scheduler_args' is missing"),
        (stdin_json(waits=True), (), "unknown field 'waits'; did you mean 'wait'?"),
        (stdin_json(wait="yes"), (), "field 'wait' must be true or false"),
        (stdin_json(component_args_str=[1]), (), "must be a list of strings"),
        (stdin_json(scheduler_args={"queu": 1}), (), "Unknown run option `queu`"),
        (stdin_json(scheduler_args={"queue": 1}), (), "must be of type: str"),
        (stdin_json(scheduler="fak"), (), "unknown scheduler 'fak'; did you mean 'fake'?"),
        (stdin_json(component_args={"replicas": "x"}), (), "'x' is not an int"),
        (stdin_json(), ("-s", "fake"), "run: --scheduler and --stdin exclude each other"),
        (stdin_json(), ("--parent_run_id", "x"), "--parent-run-id and --stdin exclude"),
        (stdin_json(), ("comp.py:job",), "a component and --stdin exclude each other"),
    ],
)
def test_bad_json_on_standard_input_is_an_error(
    text: str,
    words: tuple[str, ...],
    error: str,
    cli: Any,
    plugin: Any,
    components: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    result = cli("run", "--stdin", *words)
    assert result.code == 2
    assert error in result.error
    assert result.out == ""
    assert plugin.apps == {}


# -- wrong arguments, documents and configuration files --------------------------------------------


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("run", "run: what to run? Name a script"),
        ("run comp.py:jobb", "has no function 'jobb'; did you mean 'job'?"),
        ("run con.py:job", "no such file: con.py"),
        ("run no.such.component", "no component 'no.such.component'"),
        ("run comp.py:raises", "component comp.py:raises failed: KeyError: 'boom' ("),
        ("run comp.py:raises", "comp.py:18)"),
        ("run comp.py:Raising", "component comp.py:Raising failed: KeyError: 'built' ("),
        ("run comp.py:Raising", "comp.py:40)"),
        ("run comp.py:exits", "component comp.py:exits ended the program (exit code 7)"),
        ("run comp.py:nothing", "must return an AppDef, but it returned None"),
        ("run comp.py:untyped", "Missing type annotation for argument 'x'"),
        ("run comp.py:job --replicas x", "--replicas: 'x' is not an int"),
        ("run comp.py:job --nme x", "did you mean '--name'?"),
        ("run comp.py:job --replicas 0", "num_replicas is 0; it must be 1 or more"),
        ("run comp.py:job --replicas -3", "num_replicas is -3; it must be 1 or more"),
        ("run comp.py:job stray", "not the argument 'stray'"),
        ("run --dryrunn comp.py:job", "no such option --dryrunn; did you mean '--dryrun'?"),
        ("run --paren_run_id x comp.py:job", "did you mean '--parent_run_id'?"),
        ("run -cgf a=b comp.py:job", "no such option -cgf; did you mean '-cfg'?"),
        ("run -x comp.py:job", "no such option -x"),
        ("run -s fak comp.py:job", "unknown scheduler 'fak'; did you mean 'fake'?"),
        ("run -s absent comp.py:job", "'absent' is not installed; run: pip install acme-absent"),
        ("status absent://s/a", "'absent' is not installed; run: pip install acme-absent"),
        ("run -s fake -s other comp.py:job", "--scheduler is given 2 times, with different"),
        ("run -cfg queue comp.py:job", "'queue' is not of the form key=value"),
        ("run -cfg queu=1 comp.py:job", "Unknown run option `queu`. did you mean 'queue'?"),
        ("run -cfg queue=a -cfg queue=b comp.py:job", "-cfg queue is given twice, as a and as b"),
        ("run -cfg", "requires an argument"),
        ("run -o jsn comp.py:job", "'jsn' is not one of"),
        ("run --json -o yaml comp.py:job", "--json and -o yaml contradict each other"),
        ("run no.yaml", "no.yaml: no such file"),
        ("run comp.json --x", "takes no arguments"),
        ("status", "status: Missing argument 'HANDLE'"),
        ("status no:/form", "no:/form is not of the form"),
        ("status fak://s/a", "unknown scheduler 'fak'; did you mean 'fake'?"),
        ("status fake://s/a fake://s/b", "unexpected extra argument"),
        ("describe no:/form", "no:/form is not of the form"),
        ("cancel no:/form", "no:/form is not of the form"),
        ("delete no:/form", "no:/form is not of the form"),
        ("cancel", "which apps? Give a HANDLE"),
        ("wait no:/form", "no:/form is not of the form"),
        ("wait --until RUNING fake://s/a", "Invalid value for '--until'"),
        ("wait --timeout soon fake://s/a", "'soon' is not a duration"),
        ("log no:/form", "'no:/form' is not of the form SCHEDULER://"),
        ("log --regex ( fake://s/a", "'(' is not a regular expression"),
        ("log --since when fake://s/a", "'when' is not a time"),
        ("log -n -1 fake://s/a", "Invalid value for '-n'"),
        ("log --streams out fake://s/a", "'out' is not one of"),
        ("list -s fak", "unknown scheduler 'fak'; did you mean 'fake'?"),
        ("list --state RUNING", "unknown state 'RUNING'; did you mean 'RUNNING'?"),
        ("runopts fak", "unknown scheduler 'fak'; did you mean 'fake'?"),
        ("builtins --print no.such", "no component 'no.such'"),
        ("configure -s fak", "unknown scheduler 'fak'; did you mean 'fake'?"),
        ("lint no.py", "no.py: cannot be read"),
        ("statsu", "no such command 'statsu'; did you mean 'status'?"),
        ("--log_levl INFO status", "no such option --log_levl; did you mean '--log_level'?"),
        ("--log_level LOUD list", "unknown log level 'LOUD'; levels: "),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    words: str, error: str, cli: Any, plugin: Any, components: str
) -> None:
    result = cli(*words.split())
    assert result.code == 2
    assert error in result.error
    assert result.out == ""
    assert plugin.apps == {}


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ("name: [", "not valid YAML"),
        ("name: a\nroles: 3\n", "roles: expected a list"),
        ("name: a\nrole: []\n", "role: unknown field; did you mean 'roles'?"),
        ("name: a\nroles: []\n", "has no roles"),
        ("kind: Pod\nname: a\n", "kind: expected 'AppDef'"),
    ],
)
def test_bad_document_is_an_error_with_its_place(
    document: str, error: str, cli: Any, plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("job.yaml").write_text(document)
    result = cli("run", "job.yaml")
    assert result.code == 2
    assert error in result.error
    monkeypatch.setattr("sys.stdin", io.StringIO(document))
    assert cli("run", "-").error == result.error.replace("job.yaml: ", "standard input: ")
    assert plugin.apps == {}


def test_broken_configuration_file_is_an_error_with_its_place(cli: Any, components: str) -> None:
    Path(".torchxconfig").write_text("no section\n")
    result = cli("run", "comp.py:job")
    assert result.code == 2
    assert ".torchxconfig:1" in result.error
    assert cli("--help").code == 0
    Path(".torchxconfig").write_text("[cli:wait]\ntimeout = soon\n[fake]\nend = \n")
    result = cli("wait", HANDLE)
    assert result.code == 2
    assert "[cli:wait] timeout: 'soon' is not a duration" in result.error


# -- errors that the request did not cause ---------------------------------------------------------


def test_backend_error_is_exit_code_3(
    cli: Any, plugin: Any, components: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchx_specs.errors import BackendError

    def fails(*args: Any) -> Any:
        raise BackendError("the queue\nis closed")

    def breaks(*args: Any) -> Any:
        raise OSError("wires cut")

    def leaves_out(*args: Any) -> Any:
        raise NotImplementedError("no such thing here")

    scheduler = type(plugin.create("x"))
    monkeypatch.setattr(scheduler, "schedule", fails)
    result = cli("run", "comp.py:job")
    assert (result.code, result.error) == (3, "the queue is closed")
    monkeypatch.setattr(scheduler, "schedule", breaks)
    result = cli("run", "comp.py:job")
    assert result.code == 3
    assert result.error == "OSError: wires cut (torchx --debug ... prints the traceback)"
    result = cli("--debug", "run", "comp.py:job")
    assert result.code == 3
    assert "Traceback" in result.err
    monkeypatch.setattr(scheduler, "list", leaves_out)
    assert cli("list").code == 2


def test_cancel_continues_after_an_error(
    cli: Any, plugin: Any, components: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchx_specs.errors import BackendError

    for _ in range(3):
        cli("run", "comp.py:job")
    for fake in plugin.apps.values():
        fake.states = [AppState.RUNNING]
    scheduler = type(plugin.create("x"))
    cancel = scheduler._cancel_existing

    def fails_for_one(self: Any, app_id: str) -> None:
        if app_id == "job-1":
            raise BackendError("no")
        cancel(self, app_id)

    monkeypatch.setattr(scheduler, "_cancel_existing", fails_for_one)
    result = cli("cancel", *(f"fake://torchx/job-{n}" for n in (1, 0, 2)))
    assert (result.code, result.error) == (3, "no")
    assert [fake.cancelled for fake in plugin.apps.values()] == [True, False, True]


# -- exit codes of the commands about one app ------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (f"status {MISSING}", 1),
        (f"status --json {MISSING}", 1),
        (f"describe {MISSING}", 1),
        (f"log {MISSING}", 1),
        (f"log {MISSING}/role/0", 1),
        (f"wait {MISSING}", 1),
        (f"cancel {MISSING}", 0),
        (f"delete {MISSING}", 0),
    ],
)
def test_exit_code_for_a_missing_app(words: str, code: int, cli: Any) -> None:
    result = cli(*words.split())
    assert (result.code, result.out) == (code, "")
    if code:
        assert result.error.startswith(f"unknown app: {MISSING}")
    else:
        assert f"WARNING  app {MISSING} does not exist" in result.err


def test_status_of_a_failed_app_exits_with_0(cli: Any, plugin: Any, components: str) -> None:
    cli("run", "comp.py:job")
    plugin.apps["job-0"].states = [AppState.FAILED]
    result = cli("status", HANDLE)
    assert result.code == 0
    assert result.out.startswith("FAILED: main/0\n")
    assert "    State: FAILED\n" in result.out
    assert cli("wait", HANDLE).code == 1


# -- commands other than torchx run ----------------------------------------------------------------


def test_status_json_has_the_documented_keys(cli: Any, plugin: Any, components: str) -> None:
    cli("run", "comp.py:job", "--replicas", "2")
    plugin.apps["job-0"].states = [AppState.RUNNING]
    data = json.loads(cli("status", "--json", HANDLE).out)
    assert {**data, "roles": None} == {
        "state": "RUNNING",
        "num_restarts": 0,
        "roles": None,
        "msg": "<NONE>",
        "structured_error_msg": "<NONE>",
        "url": None,
        "handle": HANDLE,
        "app_id": "job-0",
        "scheduler": "fake",
        "ui_url": None,
        "submitted": data["submitted"],
        "started": None,
        "ended": None,
        "attempts": [],
        "summary": data["summary"],
        "first_failure": None,
    }
    assert data["submitted"].endswith("Z")
    replica = data["roles"][0]["replicas"][1]
    assert (replica["id"], replica["state"], replica["state_name"]) == (1, 3, "RUNNING")
    assert yaml.safe_load(cli("status", "-o", "yaml", HANDLE).out) == data


def test_status_shows_only_the_requested_roles(cli: Any, components: str) -> None:
    cli("run", "comp.py:job")
    result = cli("status", "--role", "main", HANDLE)
    assert "main: 1 replica: 1 " in result.out
    result = cli("status", "--roles", "main,other", "--json", HANDLE)
    assert [role["role"] for role in json.loads(result.out)["roles"]] == ["main"]
    assert "no role 'other'; roles: main" in result.err


def test_describe_shows_the_app(cli: Any, components: str) -> None:
    cli("run", "comp.py:job")
    assert cli("describe", HANDLE).out.startswith("{ 'metadata': {},\n  'name': 'job-0',\n")
    app = serialize.from_yaml(cli("describe", "-o", "yaml", HANDLE).out)
    assert app == serialize.from_json(cli("describe", "-o", "json", HANDLE).out)
    assert app.roles[0].args == ["hi"]


def test_cancel_and_delete_change_the_app(cli: Any, plugin: Any, components: str) -> None:
    cli("run", "comp.py:job")
    cli("run", "comp.py:job")
    for fake in plugin.apps.values():
        fake.states = [AppState.RUNNING]
    assert cli("cancel", HANDLE, "fake://torchx/job-1") == (0, "", "")
    assert [fake.cancelled for fake in plugin.apps.values()] == [True, True]
    assert cli("delete", HANDLE) == (0, "", "")
    assert list(plugin.apps) == ["job-1"]


def test_wait_returns_at_the_end_or_at_a_state(cli: Any, plugin: Any, components: str) -> None:
    cli("run", "comp.py:job")
    result = cli("wait", HANDLE)
    assert (result.code, result.out) == (0, "SUCCEEDED\n")
    plugin.apps["job-0"].states = [AppState.PENDING, AppState.RUNNING, AppState.FAILED]
    result = cli("wait", "--until", "running", HANDLE)
    assert (result.code, result.out) == (0, "RUNNING\n")
    result = cli("wait", "--json", HANDLE)
    assert (result.code, json.loads(result.out)["state"]) == (1, "FAILED")
    assert cli("wait", "--until", "FAILED", HANDLE).code == 0
    assert cli("wait", "--until", "SUCCEEDED", HANDLE).code == 1


@pytest.mark.parametrize(
    ("state", "goal", "code"),
    [
        ("CANCELLED", None, 1),
        ("CANCELLED", "CANCELLED", 0),
        ("RUNNING", "PENDING", 0),
        ("SUCCEEDED", "RUNNING", 0),
        ("FAILED", "RUNNING", 1),
        ("SUCCEEDED", "FAILED", 1),
    ],
)
def test_wait_says_whether_the_state_was_reached(
    cli: Any, plugin: Any, state: str, goal: str | None, code: int
) -> None:
    plugin.add("job-0", "job", states=[AppState[state]])
    words = ["--until", goal] if goal else []
    assert cli("wait", *words, HANDLE)[:2] == (code, f"{state}\n")


def test_wait_exits_with_124_after_the_timeout(cli: Any, plugin: Any, components: str) -> None:
    cli("run", "comp.py:job")
    plugin.apps["job-0"].states = [AppState.RUNNING]
    result = cli("wait", "--timeout", "100ms", HANDLE)
    assert (result.code, result.out) == (124, "RUNNING\n")
    assert result.error == f"{HANDLE} is RUNNING after 0.1 seconds"


@pytest.mark.parametrize("command", ["cancel", "delete", "describe", "status", "wait"])
@pytest.mark.parametrize("rest", ["/main", "/main/0", "/main/0,2-4"])
def test_commands_for_apps_refuse_a_role_or_replica(
    cli: Any, components: str, command: str, rest: str
) -> None:
    cli("run", "comp.py:job")
    result = cli(command, HANDLE + rest)
    assert result.code == 2
    assert f"'{HANDLE}{rest}' has more parts than the handle of an app" in result.error
    assert result.error.endswith(f"Use '{HANDLE}'")


def test_log_options_reach_the_scheduler(cli: Any, plugin: Any, components: str) -> None:
    cli("run", "comp.py:job", "--replicas", "3")
    words = ["--regex", "h.llo", "-t", "--streams", "stderr", "--until", "2026-01-02"]
    result = cli("log", *words, "--since", "2026-01-01T00:00:00", f"{HANDLE}/main/2,0")
    assert result.code == 0
    assert sorted(result.out.splitlines()) == ["main/0 hello from 0", "main/2 hello from 2"]
    asked = plugin.apps["job-0"].asked
    assert sorted(a.pop("replica") for a in asked) == [("main", 0), ("main", 2)]
    assert asked == 2 * [
        {
            "regex": None,  # the runner matches the lines
            "since": datetime(2026, 1, 1),
            "until": datetime(2026, 1, 2),
            "tail": True,
            "streams": Stream.STDERR,
        }
    ]


def test_log_shows_the_last_lines(cli: Any, plugin: Any, components: str) -> None:
    cli("run", "comp.py:job")
    plugin.apps["job-0"].logs["main", 0] = ["1\n", "2\n", "3"]
    assert cli("log", "-n", "2", HANDLE).out == "main/0 2\nmain/0 3\n"
    assert cli("log", "-n", "0", HANDLE).out == ""


def test_log_queries_the_status_once_for_all_replicas(
    cli: Any, plugin: Any, components: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler, asked = type(plugin.create("s")), []
    describe = scheduler.describe
    monkeypatch.setattr(scheduler, "describe", lambda *args: asked.append(1) or describe(*args))
    cli("run", "comp.py:job", "--replicas", "30")
    asked.clear()
    assert len(cli("log", HANDLE).out.splitlines()) == 30
    assert len(asked) < 5


def test_log_of_a_missing_role_or_replica_is_an_error(cli: Any, components: str) -> None:
    cli("run", "comp.py:job")
    result = cli("log", f"{HANDLE}/mian")
    assert result.code == 2
    assert result.error == f"{HANDLE} has no role 'mian'; did you mean 'main'? roles: main"
    result = cli("log", f"{HANDLE}/main/1")
    assert (result.code, result.error) == (2, "role 'main' has no replica 1; it has 0 to 0")


def test_runopts_prints_text_and_data(cli: Any) -> None:
    assert cli("runopts", "fake").out == (
        "fake:\n"
        "    usage:\n"
        "        [queue=QUEUE],[tags=TAGS],[project=PROJECT],[end=END]\n"
        "\n"
        "    optional arguments:\n"
        "        queue=QUEUE (str, None)\n"
        "            name of the queue\n"
        "        tags=TAGS (list, None)\n"
        "            tags of the job\n"
        "        project=PROJECT (str, none)\n"
        "            name of the project\n"
        "        end=END (str, SUCCEEDED)\n"
        "            the state at the end\n"
        "\n"
    )
    data = json.loads(cli("runopts", "--json").out)
    assert data["fake"][0] == {
        "name": "queue",
        "type": "str",
        "required": False,
        "default": None,
        "help": "name of the queue",
    }


def test_runopts_reports_a_scheduler_that_cannot_be_created(cli: Any, plugin: Any) -> None:
    def broken(session_name: str, **params: Any) -> Any:
        raise ImportError("no such library")

    plugin.schedulers = ["fake", "odd"]
    create = plugin.create
    plugin.create = lambda name, **p: create(name, **p)
    from torchx_specs.hookspecs import SchedulerPlugin, hookimpl

    class Odd:
        @hookimpl
        def torchx_schedulers(self) -> Any:
            yield SchedulerPlugin("broken", broken)

    from torchx_specs.plugins.manager import get_manager

    get_manager().register(Odd(), "odd")
    result = cli("runopts")
    assert result.code == 0
    assert "broken: <" in result.out
    assert "no such library" in result.out
    assert "fake:\n    usage:" in result.out
    result = cli("runopts", "broken")
    assert result.code == 2
    assert "no such library" in result.error


def test_configure_writes_options(cli: Any) -> None:
    text = "[fake]\nqueue = None\ntags = None\nproject = none\nend = SUCCEEDED\n\n"
    assert cli("configure", "--print", "--all").out == text
    assert cli("configure", "--print").out == "[fake]\n\n"
    assert not Path(".torchxconfig").exists()
    assert cli("configure", "-a").code == 0
    assert Path(".torchxconfig").read_text() == text


def test_configure_keeps_existing_content(cli: Any, plugin: Any) -> None:
    mine = "# mine\n[fake]\nqueue=a  ; or b\n[cli:run]\nwait = true\n"
    Path(".torchxconfig").write_text(mine)
    assert cli("configure", "-s", "fak", "-s", "fake").code == 2
    assert Path(".torchxconfig").read_text() == mine
    result = cli("configure", "-a", "-s", "fake")
    assert "added to ./.torchxconfig: [fake] tags, [fake] project, [fake] end" in result.err
    assert Path(".torchxconfig").read_text() == (
        "# mine\n[fake]\nqueue=a  ; or b\ntags = None\nproject = none\nend = SUCCEEDED\n"
        "[cli:run]\nwait = true\n"
    )
    assert "nothing changed" in cli("configure", "-a").err
    assert cli("configure", "--force").code == 0
    assert Path(".torchxconfig").read_text() == "[fake]\n\n"


def test_lint_prints_findings(cli: Any, components: str) -> None:
    result = cli("lint", "comp.py")
    assert result.code == 2
    assert result.out == (
        "comp.py:29:12: error: Missing type annotation for argument 'x' in function 'untyped'\n"
    )
    assert cli("lint", "comp.py:job") == (0, "", "")
    data = json.loads(cli("lint", "--json", "comp.py:untyped").out)
    assert (data[0]["component"], data[0]["line"], data[0]["severity"]) == ("untyped", 29, "error")
    assert cli("lint", "comp.py:nope").code == 2
    Path("bad.py").write_text("def f(:\n")
    result = cli("lint", "bad.py")
    assert result.code == 2
    assert result.out.startswith("bad.py:1:")
    Path("none.py").write_text("x = 1\n")
    assert "contains no component" in cli("lint", "none.py").error


def test_builtins_prints_the_source_of_a_component(cli: Any, components: str) -> None:
    text = cli("builtins", "--print", f"{components}:job").out
    assert "def job(name" in text
    data = json.loads(cli("builtins", "--print", f"{components}:job", "-o", "json").out)
    assert data["name"] == f"{components}:job"
    assert data["source"].rstrip() == text.rstrip()


def test_builtins_without_components_prints_zero(cli: Any) -> None:
    assert cli("builtins").out == "Found 0 builtin components:\n"
    assert cli("builtins", "--json").out == "[]\n"


def test_a_known_command_that_is_not_installed_names_its_distribution(
    cli: Any, plugin: Any
) -> None:
    plugin.commands.append(CommandPlugin("audit", "", install="pip install acme-audit"))
    result = cli("audit", "x")
    assert result.code == 2
    assert "command 'audit' is not installed; run: pip install acme-audit" in result.error
    assert "audit" not in cli("--help").out


@pytest.mark.parametrize("name", ["conformance", "sweep", "tracker"])
def test_a_command_of_another_distribution_names_it(name: str, cli: Any, plugin: Any) -> None:
    plugin.commands.extend(torchx_kit.plugin.torchx_commands())
    result = cli(name)
    distribution = {"conformance": "testing"}.get(name, name)
    message = f"command '{name}' is not installed; run: pip install torchx-{distribution}"
    assert message in result.error


def test_log_of_an_app_without_roles_asks_for_the_replica(
    cli: Any, plugin: Any, components: str
) -> None:
    handle = cli("run", "-s", "fake", f"{components}:job").out.strip()
    [fake] = plugin.apps.values()
    fake.app.roles.clear()
    assert cli("log", handle).error == (
        f"{handle}: the scheduler does not return the roles of this app; name the replica:"
        f" {handle}/ROLE/0"
    )
    assert cli("log", f"{handle}/main/0").out.endswith("hello from 0\n")


def test_log_level_hides_messages(
    cli: Any, components: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "INFO     launched app" in cli("run", "comp.py:job").err
    assert cli("--log_level", "error", "run", "comp.py:job").err == ""
    assert cli("--log-level=ERROR", "run", "comp.py:job").err == ""
    monkeypatch.setenv("LOGLEVEL", "ERROR")
    assert cli("run", "comp.py:job").err == ""
    assert "launched" in cli("--log_level", "INFO", "run", "comp.py:job").err
    monkeypatch.setenv("LOGLEVEL", "LOUD")
    assert cli("list").code == 2


def test_log_messages_have_the_documented_form(cli: Any, components: str) -> None:
    line = cli("run", "comp.py:job").err.splitlines()[0]
    stamp, level, message = line[7:26], line[27:35], line[36:]
    assert line.startswith("torchx ")
    assert datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S") <= datetime.now()
    assert (level, message) == ("INFO    ", "launched app: fake://torchx/job-0")


# -- secrets in documents and in errors

SECRET_JOB = """
name: job
roles:
  - name: r
    image: ""
    entrypoint: x
    args: [--token, s3cret]
    env: {PGPASSWORD: s3cret, LEVEL: "1"}
    resource: {cpu: 1, gpu: 0, memMB: 1}
"""


@pytest.mark.parametrize("output_format", ["json", "yaml"])
@pytest.mark.parametrize("on_terminal", [True, False])
def test_documents_are_whole_and_a_person_is_warned_of_secrets(
    cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, output_format: str, on_terminal: bool
) -> None:
    monkeypatch.setattr(app_data, "is_terminal", lambda stream: on_terminal)
    (tmp_path / "job.yaml").write_text(SECRET_JOB)
    handle = cli("run", "job.yaml").out.strip()
    for command in (["run", "--dryrun"], ["describe"]):
        target = "job.yaml" if command[0] == "run" else handle
        result = cli(*command, "-o", output_format, target)
        assert result.code == 0
        assert result.out.count("s3cret") >= 2
        warned = [line for line in result.err.splitlines() if "look like secrets" in line]
        assert len(warned) == on_terminal
        assert all("secrets: args, PGPASSWORD;" in line for line in warned)
        assert "s3cret" not in result.err


def test_errors_about_arguments_show_no_secret(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "secret_args.py").write_text(
        '''
from torchx_specs import AppDef


def env(env: dict[str, str], token: str = "") -> AppDef:
    """Do nothing.

    Args:
        env: Variables.
        token: A token.
    """
    return AppDef("a")
'''
    )
    for words in (["--env", "HF_TOKEN:s3cret"], ["--env", "A=1", "--token=s3cret", "--token=s3x"]):
        result = cli("run", "secret_args.py:env", *words)
        assert result.code == 2
        assert "s3cret" not in result.error
        assert "***" in result.error
