"""Probes of the behaviour of older ``torchx`` releases on which other people's programs rely.

``python probes.py [NAME...]`` runs all probes, or the named ones, on the ``torchx`` of that Python,
and prints the failures.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib
import logging
import os
import pathlib
import sys
from typing import Any

from harness import NEW, OLD, main, probe


def raises(expected: type[BaseException], function: Any, *args: Any, **kwargs: Any) -> str:
    """Return the text of the exception that a function must raise."""
    try:
        function(*args, **kwargs)
    except expected as e:
        return str(e)
    raise AssertionError(f"no {expected.__name__}")


class Records(logging.Handler):
    """Collects log records."""

    def __init__(self, logger: str = "") -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        logging.getLogger(logger).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Collect a record."""
        self.records.append(record)


# Probes of the data model


@probe(OLD)
def role_has_a_base_image() -> None:
    from torchx.specs import Role, macros

    role = Role("r", "image", base_image="base", args=[macros.base_img_root])
    assert role.base_image == "base"
    applied = macros.Values("/img", "app", "0", "RANK0").apply(role)
    assert applied.base_image == "base"
    assert applied.args == ["DEPRECATED"]
    assert dataclasses.replace(role, name="s").base_image == "base"


@probe(NEW)
def runopts_are_merged_by_or() -> None:
    from torchx.specs import runopts

    first, second = runopts(), runopts()
    first.add("a", type_=str, help="first")
    second.add("a", type_=int, help="second", default=1)
    second.add("b", type_=int, help="b", default=3)
    merged = first | second
    assert merged.resolve({}) == {"a": 1, "b": 3}
    assert len(first) == 1
    assert type(merged) is runopts


OPTIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("aws_batch", "AWSBatchOpts", {"queue": "q", "image_repo": "r"}),
    ("slurm", "SlurmOpts", {"partition": "p", "mail-user": "u"}),
    ("kubernetes", "KubernetesOpts", {"queue": "q", "namespace": "n"}),
    ("kubernetes_mcad", "KubernetesMCADOpts", {"namespace": "n", "priority": 3}),
    ("docker", "DockerOpts", {"copy_env": ["A*"]}),
    ("lsf", "LsfOpts", {"lsf_queue": "q"}),
    ("local", "LocalOpts", {"log_dir": "d", "prepend_cwd": True}),
]


@probe(OLD)
def options_take_one_mapping() -> None:
    for module, name, cfg in OPTIONS:
        opts = getattr(importlib.import_module(f"torchx.schedulers.{module}_scheduler"), name)(cfg)
        assert {key: opts[key] for key in cfg} == cfg, name


@probe()
def options_of_sagemaker_take_one_mapping() -> None:
    # The older scheduler's module cannot be imported without the library sagemaker.
    from torchx.schedulers.aws_sagemaker_scheduler import AWSSageMakerOpts
    from torchx.specs import InvalidRunConfigException

    cfg = {"role": "r", "instance_type": "ml.m5.large", "max_run": 60}
    opts = AWSSageMakerOpts(cfg)
    assert {key: opts[key] for key in cfg} == cfg
    assert "max_rnu" in raises(InvalidRunConfigException, AWSSageMakerOpts, {**cfg, "max_rnu": 1})


@probe()
def options_refuse_an_unknown_key_of_a_mapping() -> None:
    from torchx.specs import InvalidRunConfigException

    for module, name, _ in OPTIONS:
        cls = getattr(importlib.import_module(f"torchx.schedulers.{module}_scheduler"), name)
        assert "queeu" in raises(InvalidRunConfigException, cls, {"queeu": "q"}), name


@probe(NEW)
def docstrings_of_options_include_nested_fields() -> None:
    pathlib.Path("nested.py").write_text(
        "from dataclasses import dataclass\n"
        "from torchx.schedulers.api import StructuredOpts\n"
        '@dataclass\nclass Inner(StructuredOpts):\n    context: str = ""\n'
        '    """The context."""\n'
        '@dataclass\nclass Outer(StructuredOpts):\n    name: str\n    """The name."""\n'
        '    k8s: Inner | None = None\n    """The group."""\n'
    )
    sys.path.insert(0, os.getcwd())
    module = importlib.import_module("nested")
    assert module.Outer.get_docstrings() == {
        "name": "The name.",
        "k8s": "The group.",
        "k8s.context": "The context.",
    }


@probe(NEW)
def a_failed_override_is_tried_again() -> None:
    from torchx.specs import Role

    calls: list[int] = []

    def image() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise ValueError("not yet")
        return "made"

    role = Role("r", "i", overrides={"image": image})
    for _ in range(2):
        assert raises(ValueError, lambda: role.image) == "not yet"
        assert role.overrides["image"] is image
    assert role.image == role.image == "made"
    assert len(calls) == 3


@probe(NEW)
def a_resolved_override_is_callable() -> None:
    from torchx.specs import Role

    async def awaited() -> str:
        return "awaited"

    for source, value in ((lambda: "made", "made"), (awaited(), "awaited")):
        role = Role("r", "i", overrides={"image": source})
        assert role.image == value
        assert role.overrides["image"]() == value


@probe(NEW)
def an_override_by_a_future_of_this_loop_is_an_error() -> None:
    from torchx.specs import Role

    async def read() -> None:
        future = asyncio.get_running_loop().create_future()
        role = Role("r", "i", overrides={"image": future})
        assert "currently running in this thread" in raises(RuntimeError, lambda: role.image)
        assert role.overrides["image"] is future

    asyncio.run(read())


@probe(NEW)
def torchx_home_follows_path_home() -> None:
    from unittest import mock

    from torchx.specs import TORCHX_HOME

    with mock.patch("pathlib.Path.home", return_value=pathlib.Path.cwd() / "h"):
        assert TORCHX_HOME("x") == pathlib.Path.cwd() / "h" / ".torchx" / "x"


@probe(NEW)
def a_capability_error_names_types_and_key() -> None:
    from torchx.specs import CapabilityKey, Resource

    key = CapabilityKey("ns", "nics", int)
    resource = Resource(1, 1, 1, capabilities={"ns.nics": True})
    error = raises(TypeError, key.get, resource)
    assert "`ns.nics` expected `int`, got `bool`" in error, error


@probe(NEW)
def an_unrecognized_error_is_shown_as_raw_json() -> None:
    from torchx.specs import AppState, AppStatus, ReplicaStatus, RoleStatus

    long = '{"foo": "' + "x y " * 40 + '"}'
    for error in (long, '{"message": {"x": 2}}', "[1, 2]", '"text"', "5", '{"message": 5}'):
        replica = ReplicaStatus(0, AppState.FAILED, "r", "host", error)
        status = AppStatus(AppState.FAILED, roles=[RoleStatus("r", [replica])])
        assert error in status.format(), error


@probe(OLD, NEW)
def help_and_linter_messages_have_no_typing_prefix() -> None:
    from torchx.specs.file_linter import validate

    pathlib.Path("component.py").write_text(
        "from typing import *\nimport torchx.specs as specs\n"
        "def f(a: Set[str], b: Optional[List[List[int]]], c: str) -> specs.AppDef: ...\n"
    )
    messages = [m.description for m in validate(str(pathlib.Path("component.py").resolve()), "f")]
    assert len(messages) == 2, messages
    assert not any("typing." in message for message in messages), messages


_PAIR = "expected exactly two type parameters (dict[K, V])"
_CONTAINERS = {
    **{f"{name}[str]": name for name in ("Set", "set", "FrozenSet", "frozenset", "Deque", "Type")},
    "Set[int]": "Set",
    "Set[List[str]]": "Set",
    "Optional[Set[str]]": "Set",
    "Set[str] | None": "Set",
    "None | frozenset[int]": "frozenset",
    "Callable[[int], str]": "Callable",
    "Counter[str]": "Counter",
}
#: Annotations that the linter refuses, and the start of each message.
UNSUPPORTED = {
    **{key: f"Unsupported container type '{name}'" for key, name in _CONTAINERS.items()},
    "List[List[str]]": "Non-primitive element type 'List[str]'",
    "list[list[int]]": "Non-primitive element type 'list[int]'",
    "List[Dict[str, int]]": "Non-primitive element type 'Dict[str, int]'",
    "List[Set[str]]": "Non-primitive element type 'Set[str]'",
    "list[set[str]]": "Non-primitive element type 'set[str]'",
    "List[Tuple[int, int]]": "Non-primitive element type 'Tuple[int, int]'",
    "Optional[List[List[str]]]": "Non-primitive element type 'List[str]'",
    "List[List[str]] | None": "Non-primitive element type 'List[str]'",
    "None | list[dict[str, str]]": "Non-primitive element type 'dict[str, str]'",
    "Dict[List[str], str]": "Non-primitive key type 'List[str]'",
    "dict[dict[str, str], str]": "Non-primitive key type 'dict[str, str]'",
    "Dict[str, Set[str]]": "Non-primitive value type 'Set[str]'",
    "Dict[str, List[List[str]]]": "Non-primitive value type 'List[List[str]]'",
    "Dict[str, Dict[str, str]]": "Non-primitive value type 'Dict[str, str]'",
    "dict[str, dict[str, int]]": "Non-primitive value type 'dict[str, int]'",
    "Optional[Dict[str, Set[str]]]": "Non-primitive value type 'Set[str]'",
    **{name: f"Malformed dict type '{name}', {_PAIR}" for name in ("Dict[str]", "dict[str]")},
    "Dict[str, int, int]": f"Malformed dict type 'Dict[str, int, int]', {_PAIR}",
    "Optional[Dict[str]]": f"Malformed dict type 'Dict[str]', {_PAIR}",
    "specs.AppDef": "Unsupported argument type 'specs.AppDef'",
    "1": "Unsupported argument type '1'",
}


def linter_message(annotation: str, returns: str = "specs.AppDef") -> str:
    """Return the only message of the linter for a component with one parameter."""
    from torchx.specs.file_linter import validate

    path = pathlib.Path("component.py").resolve()
    path.write_text(
        "from typing import *\nimport torchx.specs as specs\n"
        f"def f(x: {annotation}) -> {returns}: ...\n"
    )
    (message,) = validate(str(path), "f")
    return str(message.description)


@probe(NEW)
def linter_messages_name_the_unsupported_part() -> None:
    for annotation, problem in UNSUPPORTED.items():
        expected = f"{problem} for argument 'x: {annotation}' in function 'f'"
        found = linter_message(annotation)
        assert found.startswith(expected), (found, expected)


@probe(NEW)
def the_linter_refuses_tuples_of_one_item() -> None:
    for annotation in ("tuple[str]", "Tuple[int]", "Optional[Tuple[str]]"):
        found = linter_message(annotation)
        assert found.startswith("Unsupported tuple type '")
        assert f" for argument 'x: {annotation}' in function 'f'" in found


@probe(OLD, NEW)
def the_linter_names_the_required_return_annotation() -> None:
    start = "Function: f has incorrect return annotation, supported annotation: AppDef"
    for returns in ("str", "specs.Role"):
        assert linter_message("int", returns).startswith(start)


# Probes of overlays


def accumulated(*overlays: dict[str, Any]) -> dict[str, Any]:
    """Return the overlay that several calls of ``set_overlay`` make."""
    from torchx.specs import Role
    from torchx.specs.overlays import get_overlay, set_overlay

    role = Role("r", "i")
    for overlay in overlays:
        set_overlay(role, "kubernetes", "V1Pod", overlay)
    found: dict[str, Any] = get_overlay(role, "kubernetes", "V1Pod")
    return found


@probe(NEW)
def the_last_overlay_operator_wins() -> None:
    from torchx.specs.overlays import DEL, JOIN, PUT

    join = JOIN("f", on="name")
    for earlier in ({DEL("f"): None}, {PUT("f"): [1]}, {"f": [1]}, {join: [{"name": "a"}]}):
        assert accumulated(earlier, {DEL("f"): None}) == {DEL("f"): None}
        if PUT("f") not in earlier:
            assert accumulated(earlier, {PUT("f"): [2]}) == {PUT("f"): [2]}
        if "f" not in earlier:
            assert accumulated(earlier, {"f": [2]}) == {"f": [2]}
    assert accumulated({DEL("f"): None}, {join: [{"name": "b"}]}) == {join: [{"name": "b"}]}
    assert accumulated({"d": {PUT("q"): 1}}, {"d": {DEL("q"): None}}) == {"d": {DEL("q"): None}}


@probe(NEW)
def overlay_joins_accumulate() -> None:
    from torchx.specs.overlays import JOIN

    join = JOIN("f", on="name")
    items = [{"name": "a", "x": 1}, {"name": "b"}]
    assert accumulated({join: items[:1]}, {join: items[1:]}) == {join: items}
    found = accumulated({join: [{"name": "a", "x": 1, "y": 1}]}, {join: [{"name": "a", "x": 2}]})
    assert found == {join: [{"name": "a", "x": 2, "y": 1}]}
    assert accumulated({"f": items[:1]}, {join: items[1:]}) == {join: items}


def overlay_of(stored: Any) -> dict[str, Any]:
    """Return the V1Pod overlay of a role whose metadata for Kubernetes is ``stored``."""
    from torchx.specs import Role
    from torchx.specs.overlays import get_overlay

    role = Role("r", "i", metadata={"kubernetes": stored})
    found: dict[str, Any] = get_overlay(role, "kubernetes", "V1Pod")
    return found


@probe(NEW)
def a_missing_overlay_kind_is_empty() -> None:
    from torchx.specs import Role
    from torchx.specs.overlays import get_overlay, set_overlay

    assert overlay_of({"V1Job": {"a": 1}, "V1Service": {"b": 1}}) == {}
    assert overlay_of({"job": {"a": 1}, "service": {"b": 1}}) == {}
    role = Role("r", "i")
    set_overlay(role, "kubernetes", "V1Job", {"a": 1})
    assert get_overlay(role, "kubernetes", "V1Pod") == {}


@probe()
def a_missing_kind_beside_one_other_kind_is_empty() -> None:
    assert overlay_of({"V1Job": {"a": 1}}) == {}


@probe(NEW)
def a_flat_overlay_applies_with_a_warning() -> None:
    log = Records("torchx.specs.overlays")
    for flat in ({"spec": {"a": 1}}, {"a": 1}, {"spec": {"a": 1}, "x": 1}):
        log.records.clear()
        assert overlay_of(flat) == flat
        assert [record.levelname for record in log.records] == ["WARNING"]


@probe(NEW)
def a_namespace_that_is_no_dict_is_replaced() -> None:
    from torchx.specs import Role
    from torchx.specs.overlays import get_overlay, set_overlay

    for stored in ([1], 5, None):
        assert overlay_of(stored) == {}
    for stored in ([1], 5, None, "overlay.json"):
        role = Role("r", "i", metadata={"kubernetes": stored})
        set_overlay(role, "kubernetes", "V1Pod", {"a": 1})
        assert get_overlay(role, "kubernetes", "V1Pod") == {"a": 1}


# Probes of schedulers


@probe(OLD, NEW)
def split_lines_never_joins_chunks() -> None:
    from torchx.schedulers.api import split_lines, split_lines_iterator

    assert list(split_lines_iterator(iter(["a", "b\nc", "d\n", "", "e"]))) == (
        ["a", "b\n", "c", "d\n", "e"]
    )
    assert split_lines("a\nb") == ["a\n", "b"]


@probe(OLD, NEW)
def a_local_subclass_makes_a_request_of_an_incomplete_role() -> None:
    from torchx.schedulers import local_scheduler
    from torchx.specs import AppDef, Role

    class Subclass(local_scheduler.LocalScheduler):
        pass

    scheduler = Subclass("s", local_scheduler.CWDImageProvider)
    cfg = getattr(local_scheduler, "LocalOpts", getattr(local_scheduler, "Opts", None))()
    request = scheduler._to_popen_request(AppDef("a", [Role("r", os.getcwd(), args=["x"])]), cfg)
    assert [param.args for param in request.role_params["r"]] == [["<MISSING>", "x"]]


@probe(OLD, NEW)
def a_docker_subclass_makes_a_request_of_an_incomplete_role() -> None:
    from torchx.schedulers import docker_scheduler
    from torchx.specs import AppDef, Role

    class Subclass(docker_scheduler.DockerScheduler):
        def _submit_dryrun(self, app: Any, cfg: Any) -> Any:
            return super()._submit_dryrun(app, cfg)

    cfg = getattr(docker_scheduler, "DockerOpts", getattr(docker_scheduler, "Opts", None))()
    info = Subclass("s")._submit_dryrun(AppDef("a", [Role("r", "image", args=["x"])]), cfg)
    assert [c.command for c in info.request.containers] == [["<MISSING>", "x"]]


def volcano_dry_run(requests: list[str], app_name: str, **cfg: Any) -> Any:
    """Make a dry run with ``validate_spec`` on an API server that refuses invalid names.

    Args:
        requests: The paths of the requests to the server are added to this list.
        app_name: Name of the app.
        cfg: Options besides the queue.
    """
    import http.server
    import json
    import re
    import threading

    from kubernetes.client import ApiClient, Configuration

    from torchx.schedulers import kubernetes_scheduler
    from torchx.specs import AppDef, Resource, Role

    label = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(self.path)
            job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            names = [self.path.split("/")[5], job["metadata"]["name"]]
            names += [job["spec"]["queue"], job["spec"].get("priorityClassName", "x")]
            for task in job["spec"]["tasks"]:
                names.append(task["template"]["spec"].get("serviceAccountName", "x"))
            valid = all(map(label.match, names))
            body = b"{}" if valid else b'{"kind": "Status", "reason": "Invalid", "code": 422}'
            self.send_response(201 if valid else 422)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{server.server_port}"
    scheduler = kubernetes_scheduler.create_scheduler("s", client=ApiClient(configuration))
    role = Role("r", "image", entrypoint="e", resource=Resource(1, 0, 100))
    options = {"queue": "q", "namespace": "default", "validate_spec": True, **cfg}
    return scheduler.submit_dryrun(AppDef(app_name, [role]), options)


@probe(NEW)
def validate_spec_refuses_bad_names_in_the_dry_run() -> None:
    for name in ("app", "App.x_y", "a" * 40):
        assert volcano_dry_run([], name).request.resource["kind"] == "Job"
    for name in ("a" * 50, "a" * 63):
        assert "exceeds" in raises(ValueError, volcano_dry_run, [], name)
    for option in ("namespace", "service_account", "priority_class", "queue"):
        raises(ValueError, volcano_dry_run, [], "app", **{option: "Bad Name!"})


@probe()
def a_dry_run_with_validate_spec_contacts_no_server() -> None:
    requests: list[str] = []
    volcano_dry_run(requests, "app")
    raises(ValueError, volcano_dry_run, requests, "a" * 50)
    assert requests == []


@probe()
def names_that_are_too_long_are_shortened_without_validate_spec() -> None:
    for unset in (None, False):
        info = volcano_dry_run([], "a" * 70, validate_spec=unset)
        assert len(info.request.resource["metadata"]["name"]) < 63


@probe()
def reading_the_docker_client_contacts_no_engine() -> None:
    from docker.errors import DockerException

    from torchx.schedulers.docker_scheduler import DockerScheduler

    os.environ["DOCKER_HOST"] = "tcp://127.0.0.1:9"
    client = DockerScheduler("s")._docker_client
    raises(DockerException, client.containers.list)


@probe()
def kubernetes_uses_a_configuration_that_was_set_in_code() -> None:
    import http.server
    import threading

    from kubernetes.client import Configuration

    from torchx.schedulers import kubernetes_scheduler

    paths: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            body = b'{"items": []}'
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{server.server_port}"
    Configuration.set_default(configuration)
    assert kubernetes_scheduler.create_scheduler("s").list() == []
    assert paths


@probe(OLD, NEW)
def kubernetes_connects_through_the_library() -> None:
    from unittest import mock

    from torchx.schedulers import kubernetes_scheduler

    loaders = ("load_kube_config", "load_incluster_config")
    with (
        mock.patch(f"kubernetes.config.{loaders[0]}") as first,
        mock.patch(f"kubernetes.config.{loaders[1]}") as second,
    ):
        os.environ["TORCHX_KUBERNETES_RETRY_SECONDS"] = "0"
        with contextlib.suppress(Exception):  # The call fails, because there is no cluster.
            kubernetes_scheduler.create_scheduler("s").describe("default:x")
    assert first.called or second.called


@probe()
def kubernetes_translates_the_errors_of_the_library() -> None:
    from unittest import mock

    from kubernetes.config import ConfigException

    from torchx.schedulers import kubernetes_scheduler
    from torchx.specs import TorchXError

    pathlib.Path("config").write_text("contexts: []\n")
    os.environ["KUBECONFIG"] = "config"
    error = ConfigException("no such context")
    with (
        mock.patch("kubernetes.config.load_kube_config", side_effect=error),
        mock.patch("kubernetes.config.load_incluster_config", side_effect=error),
    ):
        os.environ["TORCHX_KUBERNETES_RETRY_SECONDS"] = "0"
        scheduler = kubernetes_scheduler.create_scheduler("s")
        assert "no such context" in raises(TorchXError, scheduler.describe, "default:x")


@probe(OLD, NEW)
def a_slurm_replica_is_options_and_words() -> None:
    from torchx.schedulers.slurm_scheduler import SlurmOpts, SlurmReplicaRequest
    from torchx.specs import Resource, Role, macros

    role = Role("r", "/img", entrypoint="python", resource=Resource(2, 0, 1000))
    role.args = ["$x", "a b", macros.app_id]
    role.env = {"A": "b c"}
    cfg = SlurmOpts(partition="p")
    options, words = SlurmReplicaRequest.from_role("r-0", role, cfg, False).materialize()
    assert {"--job-name=r-0", "--partition=p", "--mem=1000", "--cpus-per-task=2"} <= set(options)
    assert words[-4:-1] == ["python", "'$x'", "'a b'"]
    assert words[-1].replace("''", "") == '"$SLURM_JOB_ID"'
    assert "'--export=ALL,A=b c'" in words


def volcano_job(**attributes: Any) -> dict[str, Any]:
    """Return the Volcano Job of an app with one role, which has these further attributes."""
    from torchx.schedulers import kubernetes_scheduler
    from torchx.specs import AppDef, Resource, Role

    cfg = {"queue": "q", "namespace": "default", "validate_spec": False, "image_repo": None}
    cfg.update({"service_account": None, "priority_class": None})
    if OLD not in getattr(sys.modules["torchx"], "__version__", ""):
        del cfg["image_repo"]
    role = Role("trainer.a_b", "image", entrypoint="e", resource=Resource(1, 0, 100), **attributes)
    scheduler = kubernetes_scheduler.create_scheduler("s")
    job: dict[str, Any] = scheduler.submit_dryrun(AppDef("app.x_Y", [role]), cfg).request.resource
    return job


@probe(OLD, NEW)
def volcano_tasks_have_their_least_number_of_replicas() -> None:
    tasks = volcano_job(num_replicas=3, min_replicas=2)["spec"]["tasks"]
    assert sum(task["replicas"] for task in tasks) == 3
    assert sum(task["minAvailable"] for task in tasks) == 2


@probe(OLD, NEW)
def kubernetes_labels_keep_dots() -> None:
    template = volcano_job()["spec"]["tasks"][0]["template"]
    metadata = template["metadata"] if isinstance(template, dict) else template.metadata
    labels = metadata["labels"] if isinstance(metadata, dict) else metadata.labels
    assert labels["torchx.pytorch.org/role-name"] == "trainer.a_b"
    assert labels["torchx.pytorch.org/app-name"] == "app.x_Y"


@probe(OLD, NEW)
def a_nonsensical_cache_size_harms_only_its_scheduler() -> None:
    from torchx.runner import get_runner

    with get_runner(cache_size="many") as runner:
        assert "local_cwd" in runner.scheduler_backends()
        assert len(runner.scheduler_run_opts("slurm")) > 1
        raises(Exception, runner.scheduler_run_opts, "local_cwd")


@probe()
def a_nonsensical_cache_size_is_named() -> None:
    from torchx.runner import get_runner

    with get_runner(cache_size="many") as runner:
        error = raises(Exception, runner.scheduler_run_opts, "local_cwd")
        assert "local_cwd" in error
        assert "cache_size is 'many'" in error, error


# Probes of trackers and commands


def drive(module: str, name: str, *argv: str) -> str:
    """Run a command class through argparse; return what it prints."""
    import argparse
    import io

    command = getattr(importlib.import_module(f"torchx.cli.{module}"), name)()
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    args = parser.parse_args(argv)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        getattr(args, "func", command.run)(args)
    return out.getvalue()


def tracker() -> Any:
    """Return a tracker of files with two runs, and configure it in the working directory."""
    import fsspec

    from torchx.tracker.backend.fsspec import FsspecTracker

    os.mkdir("runs")
    pathlib.Path("fs.conf").write_text(f"protocol=file\nroot_path={os.getcwd()}/runs\n")
    pathlib.Path(".torchxconfig").write_text(
        "[torchx:tracker]\nfsspec=\n[tracker:fsspec]\nconfig=fs.conf\n"
    )
    found = FsspecTracker(fsspec.filesystem("file"), f"{os.getcwd()}/runs")
    found.add_metadata("parent", a=1)
    found.add_metadata("run", lr=7)
    found.add_source("run", "parent")
    found.add_artifact("run", "model", "/tmp/model")
    return found


@probe(OLD, NEW)
def tracker_methods_return_lists() -> None:
    found = tracker()
    assert type(found.run_ids()) is list
    assert sorted(found.run_ids()) == ["parent", "run"]
    assert found.run_ids(parent_run_id="parent") == ["run"]
    assert type(found.sources("run")) is list


@probe(OLD, NEW)
def the_tracker_command_is_driven_by_argparse() -> None:
    tracker()
    # Set variables, because torchx read the configuration file when it was imported.
    os.environ["TORCHX_TRACKERS"] = "fsspec"
    os.environ["TORCHX_TRACKER_FSSPEC_CONFIG"] = "fs.conf"
    from torchx.cli.cmd_tracker import CmdTracker  # noqa: F401

    for argv in (["jobs"], ["metadata", "run"], ["artifacts", "run"]):
        drive("cmd_tracker", "CmdTracker", "list", *argv)


@probe(NEW)
def commands_are_driven_by_argparse() -> None:
    argv = ["--dryrun", "-s", "local_cwd", "utils.echo", "--msg", "hello"]
    assert "hello" in drive("cmd_run", "CmdRun", *argv)
    drive("cmd_cancel", "CmdCancel", "local_cwd://torchx/nope")
    drive("cmd_delete", "CmdDelete", "local_cwd://torchx/nope")
    assert "local_cwd" in drive("cmd_runopts", "CmdRunopts", "local_cwd")


@probe(OLD, NEW)
def cancel_is_driven_by_argparse() -> None:
    drive("cmd_cancel", "CmdCancel", "local_cwd://torchx/nope")


@probe(OLD, NEW)
def parsed_arguments_have_their_older_names() -> None:
    import argparse

    from torchx.cli.cmd_cancel import CmdCancel
    from torchx.cli.cmd_run import CmdRun

    parser = argparse.ArgumentParser()
    CmdCancel().add_arguments(parser)
    assert parser.parse_args(["a://b/c"]).app_handle == "a://b/c"
    parser = argparse.ArgumentParser()
    CmdRun().add_arguments(parser)
    args = parser.parse_args(["--dryrun", "utils.echo", "--msg", "x"])
    assert args.component_name_and_args == ["utils.echo", "--msg", "x"]
    assert args.dryrun is True


@probe(OLD, NEW)
def validate_of_a_log_identifier_exits() -> None:
    from torchx.cli.cmd_log import validate

    raises(SystemExit, validate, "nope")
    validate("slurm://session/app/role/0,1")


@probe(OLD, NEW)
def the_log_command_exits_for_a_malformed_identifier() -> None:
    raises(SystemExit, drive, "cmd_log", "CmdLog", "nope")


@probe(OLD, NEW)
def the_log_command_reads_named_replicas_from_a_mock() -> None:
    from unittest import mock

    from torchx.runner import Runner

    for double in (mock.MagicMock(), mock.MagicMock(spec=Runner)):
        double.__enter__.return_value = double
        double.log_lines.return_value = ["line\n"]
        with mock.patch("torchx.cli.cmd_log.get_runner", return_value=double):
            assert drive("cmd_log", "CmdLog", "slurm://s/app/r/0") == "r/0 line\n"
        double.log_lines.assert_called_once_with(
            "slurm://s/app", "r", 0, None, should_tail=False, streams=None
        )
        double.status.assert_not_called()


@probe(OLD, NEW)
def a_patched_runner_is_used_by_commands() -> None:
    from unittest import mock

    for module, name, argv in (("cmd_list", "CmdList", ["-s", "slurm"]),):
        made = []

        def get_runner(name: Any = None, made: list[Any] = made) -> Any:
            made.append(mock.MagicMock())
            return made[-1]

        with mock.patch(f"torchx.cli.{module}.get_runner", get_runner):
            drive(module, name, *argv)
        assert len(made) == 1


@probe()
def a_patched_runner_without_component_defaults_is_used_by_run() -> None:
    from unittest import mock

    from torchx.runner import get_runner as original

    calls = []

    def get_runner(name: Any = None) -> Any:
        calls.append(name)
        return original()

    pathlib.Path(".torchxconfig").write_text("[component:utils.echo]\nmsg = configured\n")
    with mock.patch("torchx.cli.cmd_run.get_runner", get_runner):
        drive("cmd_run", "CmdRun", "--dryrun", "-s", "local_cwd", "utils.echo", "--msg", "x")
    assert calls == [None]


@probe(OLD, NEW)
def version_and_help_exit() -> None:
    from torchx.cli.main import main as torchx_main

    for argv in (["--version"], ["--help"], ["run", "--help"]):
        assert raises(SystemExit, torchx_main, argv) == "0"


# Probes of components


def component(x: int, *args: str, y: str = "d") -> Any:
    """Make an app.

    Args:
        x: the x
        args: the rest
        y: the y
    """
    from torchx.specs import AppDef

    return AppDef(f"{x}-{y}-{list(args)}")


# Releases do not evaluate annotations that are strings.
component.__annotations__ = {"x": int, "args": str, "y": str, "return": Any}


@probe(NEW)
def configured_values_fill_variable_arguments() -> None:
    from torchx.specs.builders import parse_args

    config = {"args": ["a", "b c"]}
    assert parse_args(component, ["--x", "1"], config=config).args == ["a", "b c"]
    assert parse_args(component, ["--x", "1", "z"], config=config).args == ["z"]
    assert parse_args(component, ["--x", "1"], {"args": "a b"}).args == ["a", "b"]


@probe(OLD, NEW)
def wrong_arguments_exit_with_usage() -> None:
    import io

    from torchx.specs.builders import materialize_appdef

    for argv in ([], ["--x", "zz"], ["--x", "1", "--zz", "1"]):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            raises(SystemExit, materialize_appdef, component, argv)
        assert "usage: torchx run <run args...> component " in err.getvalue()
    assert materialize_appdef(component, ["--x", "1", "r"]).name == "1-d-['r']"


@probe(OLD, NEW)
def help_names_required_parameters_and_defaults() -> None:
    import io

    from torchx.specs import materialize_appdef

    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert raises(SystemExit, materialize_appdef, component, ["--help"]) == "0"
    assert "the x (required)" in out.getvalue()
    assert "the y (default: d)" in out.getvalue()


@probe(NEW)
def an_annotated_type_is_unwrapped() -> None:
    import inspect
    import typing

    from torchx.util.types import get_argparse_param_type

    def of(annotation: Any) -> Any:
        kind = inspect.Parameter.KEYWORD_ONLY
        return get_argparse_param_type(inspect.Parameter("x", kind, annotation=annotation))

    assert of(typing.Annotated[int, "-x"]) is int
    assert of(bool) is str


@probe(NEW)
def to_dict_refuses_malformed_text() -> None:
    from torchx.util.types import to_dict

    for text in ("a", "a=", "=1", "a=1=2"):
        raises(ValueError, to_dict, text)
    assert to_dict("a=1,2,b='x=y'") == {"a": "1,2", "b": "x=y"}
    assert to_dict("") == {}


@probe(NEW)
def load_module_warns_of_a_module_that_fails() -> None:
    from torchx.util.modules import load_module

    sys.path.insert(0, os.getcwd())
    pathlib.Path("broken_module.py").write_text("import a_missing_module\n")
    log = Records("torchx.util.modules")
    assert load_module("broken_module") is None
    assert [record.levelname for record in log.records] == ["WARNING"]
    assert load_module("a_missing_module") is None
    assert len(log.records) == 1


@probe(OLD, NEW)
def distributed_is_a_package() -> None:
    import importlib.util

    spec = importlib.util.find_spec("torchx.distributed")
    assert spec is not None
    assert spec.submodule_search_locations


@probe(NEW)
def deprecation_messages_begin_with_deprecated() -> None:
    import warnings

    from torchx.deprecations import deprecated, deprecated_module

    @deprecated(replacement="new")
    def old() -> None: ...

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        old()
        deprecated_module("a.b", "c.d")
    assert [str(warning.message)[:12] for warning in seen] == ["[Deprecated]"] * 2


if __name__ == "__main__":
    main()
