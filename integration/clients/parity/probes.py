"""Behaviour of older ``torchx`` releases that other people's programs rely on, one probe each.

``python probes.py [NAME...]`` runs them on the ``torchx`` of that Python, and prints the failures.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import logging
import os
import pathlib
import sys
from typing import Any

from harness import NEW, OLD, main, probe


def raises(expected: type[BaseException], function: Any, *args: Any, **kwargs: Any) -> str:
    """Return the text of the exception that a function raises."""
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


# Model


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


# Overlays


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
    """Return the overlay of the kind V1Pod in a role's metadata."""
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


if __name__ == "__main__":
    main()
