"""Tests of AppDefs as dicts, JSON and YAML."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import doctest
import enum
import gc
import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from torchx_specs.errors import SerializationError
from torchx_specs.formats import serialize
from torchx_specs.formats.serialize import (
    from_dict,
    from_json,
    from_yaml,
    json_schema,
    load,
    to_dict,
    to_json,
    to_yaml,
)
from torchx_specs.model.app import AppDef, RetryPolicy, Role
from torchx_specs.model.constants import MAX_REPLICAS
from torchx_specs.model.mounts import BindMount, DeviceMount, VolumeMount
from torchx_specs.model.resources import NULL_RESOURCE, Resource
from torchx_specs.overlays import DEL, JOIN, PUT, get_overlay, set_overlay
from torchx_specs.workspace.spec import Workspace

SCHEMA = jsonschema.Draft202012Validator(json_schema())


def full_app() -> AppDef:
    trainer = Role(
        name="trainer",
        image="img:1",
        min_replicas=1,
        entrypoint="python",
        args=["-m", "train", "", "--x=${app_id}"],
        env={"A": "1", "B": "no", "C": "a\nb"},
        num_replicas=2,
        max_retries=3,
        retry_policy=RetryPolicy.REPLICA,
        resource=Resource(
            cpu=4,
            gpu=1,
            memMB=1024,
            capabilities={"node.kubernetes.io/instance-type": "p4d", "nested": {"a": [1, None]}},
            devices={"vpc.amazonaws.com/efa": 1},
            tags={"torchx/named_resources.name": "big", "n": 1.5, "t": True},
        ),
        port_map={"http": 8080},
        metadata={"tuple": (1, ("a",)), "$tuple": [1], "plain": {"x": None}},
        mounts=[
            BindMount("/a", "/b", read_only=True),
            VolumeMount("vol", "/v"),
            DeviceMount("/dev/x", "/dev/y", "rw"),
        ],
        workspace=Workspace({"~/src": "", "./lib": "lib"}),
    )
    set_overlay(
        trainer,
        "kubernetes",
        "V1Pod",
        {"spec": {PUT("a"): [1], JOIN("b", on="name"): [{"name": "x"}], DEL("c"): None, "d": (1,)}},
    )
    app = AppDef("app", roles=[trainer, Role("ps", image="img:2")], metadata={"k": "v"})
    set_overlay(app, "kubernetes", "V1Job", {"spec": {"x": 1}})
    return app


FORMS = {
    "dict": (to_dict, from_dict),
    "json": (to_json, from_json),
    "yaml": (to_yaml, from_yaml),
    "json by load": (to_json, load),
    "yaml by load": (to_yaml, load),
}


@pytest.mark.parametrize("form", FORMS)
def test_round_trip_keeps_everything(form: str) -> None:
    write, read = FORMS[form]
    app = full_app()
    result = read(write(app))
    assert result == app
    assert repr(result) == repr(app)  # == does not distinguish 1 from True, or a str from an Enum
    overlay = get_overlay(result.roles[0], "kubernetes", "V1Pod")
    assert overlay == get_overlay(app.roles[0], "kubernetes", "V1Pod")


def test_the_shape_of_a_document() -> None:
    app = AppDef(
        "echo",
        roles=[
            Role(
                "echo",
                image="/tmp",
                entrypoint="echo",
                args=["hi"],
                resource=Resource(1, 0, 1024),
                mounts=[BindMount("/a", "/b")],
            )
        ],
    )
    assert to_dict(app) == {
        "kind": "AppDef",
        "version": 1,
        "name": "echo",
        "roles": [
            {
                "name": "echo",
                "image": "/tmp",
                "min_replicas": None,
                "entrypoint": "echo",
                "args": ["hi"],
                "env": {},
                "num_replicas": 1,
                "max_retries": 0,
                "retry_policy": "APPLICATION",
                "resource": {
                    "cpu": 1,
                    "gpu": 0,
                    "memMB": 1024,
                    "capabilities": {},
                    "devices": {},
                    "tags": {},
                },
                "port_map": {},
                "metadata": {},
                "mounts": [
                    {"type": "bind", "src_path": "/a", "dst_path": "/b", "read_only": False}
                ],
                "workspace": None,
            }
        ],
        "metadata": {},
    }


def test_every_field_of_a_role_is_in_the_document() -> None:
    fields = {field.name for field in dataclasses.fields(Role)}
    assert set(to_dict(full_app())["roles"][0]) == fields - {"overrides", "base_image"}


def test_null_resource_survives_a_round_trip() -> None:
    app = from_dict(to_dict(AppDef("a", roles=[Role("r", image="i")])))
    assert app.roles[0].resource is NULL_RESOURCE


def test_document_shares_no_data_with_the_app() -> None:
    app = full_app()
    before = copy.deepcopy(app)
    data = to_dict(app)
    data["roles"][0]["args"].append("x")
    data["roles"][0]["resource"]["tags"]["x"] = 1
    data["metadata"]["x"] = "y"
    assert app == before


def test_role_of_a_subclass_becomes_a_plain_role() -> None:
    class Special(Role):
        pass

    app = from_dict(to_dict(AppDef("a", roles=[Special("r", image="i", args=["x"])])))
    assert type(app.roles[0]) is Role
    assert app.roles[0].args == ["x"]


def test_enums_that_are_text_or_numbers_are_written_as_such() -> None:
    class Mode(str, enum.Enum):
        FAST = "fast"

    class Level(enum.IntEnum):
        HIGH = 2

    app = AppDef("a", roles=[Role("r", image="i", args=[Mode.FAST], metadata={"l": Level.HIGH})])
    for write, read in FORMS.values():
        role = read(write(app)).roles[0]
        assert (role.args, role.metadata) == (["fast"], {"l": 2})
        assert type(role.args[0]) is str
        assert type(role.metadata["l"]) is int


class TestOverrides:
    def test_overrides_are_resolved(self) -> None:
        role = Role("r", image="eager", overrides={"image": lambda: "lazy", "args": ["x"]})
        data = to_dict(AppDef("a", roles=[role]))["roles"][0]
        assert (data["image"], data["args"]) == ("lazy", ["x"])
        assert "overrides" not in data

    def test_failing_override_is_named(self) -> None:
        def fails() -> str:
            raise RuntimeError("no registry")

        role = Role("r", image="eager", overrides={"image": fails})
        with pytest.raises(SerializationError) as error:
            to_dict(AppDef("a", roles=[role]))
        assert str(error.value) == "roles[0].image: cannot resolve the override: no registry"


class Opaque:
    def __repr__(self) -> str:
        return "Opaque()"


SELF: list[Any] = []
SELF.append(SELF)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"args": ["a", 1]}, "roles[0].args[1]: expected text, got 1 (int)"),
        ({"args": "text"}, "roles[0].args: expected a list, got 'text' (str)"),
        ({"env": {"A": 1}}, "roles[0].env.A: expected text, got 1 (int)"),
        ({"env": {"A.B": None}}, "roles[0].env['A.B']: expected text, got null"),
        ({"env": {1: "a"}}, "roles[0].env: key 1 (int) is not text"),
        ({"name": None}, "roles[0].name: expected text, got null"),
        ({"num_replicas": "2"}, "roles[0].num_replicas: expected an integer, got '2' (str)"),
        ({"num_replicas": True}, "roles[0].num_replicas: expected an integer, got true"),
        ({"num_replicas": 1.5}, "roles[0].num_replicas: expected an integer, got 1.5 (float)"),
        (
            {"retry_policy": "ROLE"},
            "roles[0].retry_policy: expected a RetryPolicy, got 'ROLE' (str)",
        ),
        ({"resource": None}, "roles[0].resource: expected a Resource, got null"),
        ({"resource": Resource("1", 0, 1)}, "roles[0].resource.cpu: expected a number"),
        ({"port_map": {"a": "b"}}, "roles[0].port_map.a: expected an integer, got 'b' (str)"),
        ({"mounts": ["x"]}, "roles[0].mounts[0]: expected a BindMount, VolumeMount or DeviceMount"),
        ({"workspace": "."}, "roles[0].workspace: expected a Workspace, got '.' (str)"),
        ({"metadata": {"a": [Opaque()]}}, "roles[0].metadata.a[0]: JSON cannot hold Opaque()"),
        (
            {"metadata": {"a": {"b": {1, 2}}}},
            "roles[0].metadata.a.b: JSON cannot hold {1, 2} (set)",
        ),
        ({"metadata": {"a": b"x"}}, "roles[0].metadata.a: JSON cannot hold b'x' (bytes)"),
        ({"metadata": {"a": float("nan")}}, "roles[0].metadata.a: JSON has no number nan"),
        ({"metadata": {"a": float("inf")}}, "roles[0].metadata.a: JSON has no number inf"),
        ({"metadata": {"a": {(1,): 2}}}, "roles[0].metadata.a: key a list is not text"),
        ({"metadata": {"a": SELF}}, "app 'app': data is nested deeper than 100 levels, or contain"),
    ],
)
def test_values_beyond_json_are_named_by_path(change: dict[str, Any], problem: str) -> None:
    role = Role("r", image="i")
    vars(role).update(change)
    with pytest.raises(SerializationError) as error:
        to_dict(AppDef("app", roles=[role]))
    assert str(error.value).startswith(problem)
    assert "\n" not in str(error.value)


def test_all_problems_are_named_at_once() -> None:
    app = AppDef("a", roles=[Role("r", image="i", args=[1], env={"A": 2})])
    with pytest.raises(SerializationError) as error:
        to_dict(app)
    assert error.value.problems == (
        "roles[0].args[0]: expected text, got 1 (int)",
        "roles[0].env.A: expected text, got 2 (int)",
    )


def document(**role: Any) -> dict[str, Any]:
    return {"name": "a", "roles": [{"name": "r", "image": "i", **role}]}


MOUNT = {"type": "bind", "src_path": "/a", "dst_path": "/b"}

GOOD: list[dict[str, Any]] = [
    {"name": "a"},
    {"kind": "AppDef", "version": 1, "name": "a", "roles": [], "metadata": {}},
    document(),
    document(resource=None),
    document(resource="gpu.small"),
    document(resource={"cpu": 1, "gpu": 0, "memMB": 1024}),
    document(resource={"cpu": 0.5, "gpu": 0, "memMB": 1024, "devices": {"a": 1}}),
    document(min_replicas=None),
    document(min_replicas=1),
    document(mounts=[MOUNT, {**MOUNT, "read_only": True}]),
    document(mounts=[{"type": "volume", "src": "v", "dst_path": "/b"}]),
    document(mounts=[{"type": "device", "src_path": "/dev/x", "dst_path": "/dev/x"}]),
    document(workspace={"projects": {"a": ""}}),
    document(
        metadata={"a": {"$tuple": [1]}, "b": {"$dict": {"$tuple": 5}}, "c": {"$tuple": 1, "d": 2}}
    ),
    document(retry_policy="ROLE"),
]

DID_YOU_MEAN_ROLE = (
    "roles[0].retry_policy: expected one of REPLICA, APPLICATION, ROLE, got 'ROL' (str);"
    " did you mean 'ROLE'?"
)

BAD: list[tuple[Any, str]] = [
    ([], "expected a mapping, got a list"),
    (None, "expected a mapping, got null"),
    ("x", "expected a mapping, got 'x' (str)"),
    ({}, "missing field 'name'"),
    ({"name": 5}, "name: expected text, got 5 (int); put it in quotes"),
    ({"name": "a", "role": []}, "role: unknown field; did you mean 'roles'?"),
    ({"name": "a", "zzzzzz": 1}, "zzzzzz: unknown field"),
    ({"name": "a", "kind": "Role"}, "kind: expected 'AppDef', got 'Role' (str)"),
    (
        {"name": "a", "version": 2, "new": 1},
        "version: this reads version 1, not 2 (written by a newer torchx-specs?)",
    ),
    ({"name": "a", "version": 0}, "version: this reads version 1, not 0"),
    ({"name": "a", "version": "1"}, "version: expected an integer, got '1' (str)"),
    ({"name": "a", "roles": {}}, "roles: expected a list, got a mapping"),
    ({"name": "a", "roles": [5]}, "roles[0]: expected a mapping, got 5 (int)"),
    ({"name": "a", "roles": [{"name": "r"}]}, "roles[0]: missing field 'image'"),
    ({"name": "a", "metadata": []}, "metadata: expected a mapping, got a list"),
    (document(num_replica=2), "roles[0].num_replica: unknown field; did you mean 'num_replicas'?"),
    (document(num_replicas="two"), "roles[0].num_replicas: expected an integer, got 'two' (str)"),
    (document(num_replicas=True), "roles[0].num_replicas: expected an integer, got true"),
    (
        document(num_replicas=10_000_000),
        f"roles[0].num_replicas is 10000000; it must be {MAX_REPLICAS} or less",
    ),
    (document(num_replicas=None), "roles[0].num_replicas: expected an integer, got null"),
    (document(args="x"), "roles[0].args: expected a list, got 'x' (str)"),
    (document(args=[0.01]), "roles[0].args[0]: expected text, got 0.01 (float); put it in quotes"),
    (document(args=[["a"]]), "roles[0].args[0]: expected text, got a list"),
    (document(env={"A": False}), "roles[0].env.A: expected text, got false; put it in quotes"),
    (document(env={"A": None}), "roles[0].env.A: expected text, got null"),
    (document(env=["A=1"]), "roles[0].env: expected a mapping, got a list"),
    (
        document(retry_policy="APLICATION"),
        "roles[0].retry_policy: expected one of REPLICA, APPLICATION, ROLE, got 'APLICATION' (str)",
    ),
    (document(retry_policy="ROL"), DID_YOU_MEAN_ROLE),
    (document(retry_policy=1), "roles[0].retry_policy: expected one of"),
    (
        document(resource={"cpu": 1, "gpu": 0, "memMb": 5, "memMB": 5}),
        "roles[0].resource.memMb: unknown field; did you mean 'memMB'?",
    ),
    (document(resource={"cpu": 1, "gpu": 0}), "roles[0].resource: missing field 'memMB'"),
    (
        document(resource={"cpu": "1", "gpu": 0, "memMB": 1}),
        "roles[0].resource.cpu: expected a number, got '1' (str)",
    ),
    (document(resource=5), "roles[0].resource: expected a mapping or the name of a named resource"),
    (document(mounts=[{}]), "roles[0].mounts[0]: missing field 'type': bind, volume or device"),
    (
        document(mounts=[{"type": "nfs"}]),
        "roles[0].mounts[0].type: expected bind, volume or device",
    ),
    (document(mounts=[{"type": "bind"}]), "roles[0].mounts[0]: missing field 'src_path'"),
    (
        document(mounts=[{**MOUNT, "readonly": True}]),
        "roles[0].mounts[0].readonly: unknown field; did you mean 'read_only'?",
    ),
    (
        document(mounts=[{**MOUNT, "read_only": "yes"}]),
        "roles[0].mounts[0].read_only: expected true or false, got 'yes' (str)",
    ),
    (document(mounts=["type=bind"]), "roles[0].mounts[0]: expected a mapping"),
    (document(workspace={}), "roles[0].workspace: missing field 'projects'"),
    (document(workspace={"projects": {"a": None}}), "roles[0].workspace.projects.a: expected text"),
    (document(metadata={"a": {"$tuple": 5}}), "roles[0].metadata.a.$tuple: expected a list"),
    (document(metadata={"a": {"$dict": 5}}), "roles[0].metadata.a.$dict: expected a mapping"),
]


@pytest.mark.parametrize("data", GOOD, ids=lambda data: json.dumps(data)[:60])
def test_good_documents_are_read_and_fit_the_schema(data: dict[str, Any]) -> None:
    assert isinstance(from_dict(data), AppDef)
    SCHEMA.validate(data)


@pytest.mark.parametrize(("data", "problem"), BAD, ids=[problem for _, problem in BAD])
def test_bad_documents_are_refused_here_and_by_the_schema(data: Any, problem: str) -> None:
    with pytest.raises(SerializationError) as error:
        from_dict(data)
    assert error.value.problems[0].startswith(problem)
    assert "\n" not in str(error.value)
    assert isinstance(error.value, ValueError)
    assert not SCHEMA.is_valid(data)


def test_all_problems_of_a_document_are_named() -> None:
    with pytest.raises(SerializationError) as error:
        from_dict(
            {"name": "a", "roles": [{"nam": "r", "image": 5}, {"name": "p", "image": "i", "x": 1}]}
        )
    assert error.value.problems == (
        "roles[0]: missing field 'name'",
        "roles[0].nam: unknown field; did you mean 'name'?",
        "roles[0].image: expected text, got 5 (int); put it in quotes",
        "roles[1].x: unknown field",
    )


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({1: "a"}, "roles[0].metadata.a: key 1 (int) is not text; put it in quotes"),
        (
            datetime.date(2024, 1, 2),
            "roles[0].metadata.a: datetime.date(2024, 1, 2) (date) is no JSON",
        ),
        (float("inf"), "roles[0].metadata.a: JSON has no number inf"),
        (SELF, "data is nested deeper than 100 levels, or contains itself"),
    ],
)
def test_yaml_only_data_is_refused(value: Any, problem: str) -> None:
    with pytest.raises(SerializationError) as error:
        from_dict(document(metadata={"a": value}))
    assert error.value.problems[0].startswith(problem)


@pytest.mark.parametrize("wrapped", [list, tuple])
def test_the_deepest_document_that_is_written_can_be_read(wrapped: type) -> None:
    app = AppDef("a", roles=[Role("r", image="i", metadata={"a": wrapped()})])

    def nest_until_refused() -> None:
        while from_json(to_json(app)) == from_yaml(to_yaml(app)) == app:
            app.roles[0].metadata["a"] = wrapped([app.roles[0].metadata["a"]])

    with pytest.raises(SerializationError, match="app 'a': data is nested deeper than 100 levels"):
        nest_until_refused()


def test_schema_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


class TestNamedResources:
    def test_resource_can_be_a_name(self) -> None:
        app = from_dict(document(resource="gpu.small"))
        assert (app.roles[0].resource.gpu, app.roles[0].resource.memMB) == (1, 32 * 1024)

    def test_unknown_named_resource_is_named(self) -> None:
        with pytest.raises(SerializationError, match=r"roles\[0\]\.resource: .*gpu\.smal"):
            from_dict(document(resource="gpu.smal"))

    def test_named_resource_cannot_be_empty(self) -> None:
        with pytest.raises(
            SerializationError, match=r"roles\[0\]\.resource: expected a mapping or"
        ):
            from_dict(document(resource=""))


class TestYaml:
    def test_a_document_by_hand(self) -> None:
        app = from_yaml(
            """
            name: train
            roles:
              - name: trainer
                image: img:1
                entrypoint: python
                args: [-m, train, "--lr", "0.01"]
                env:
                  FLAG: "on"
                num_replicas: 2
                resource: cpu.small
                metadata:
                  kubernetes:
                    V1Pod:
                      spec:
                        tolerations: !!python/tuple [{key: gpu}]
            """
        )
        role = app.roles[0]
        assert role.args == ["-m", "train", "--lr", "0.01"]
        assert get_overlay(role, "kubernetes", "V1Pod") == {
            "spec": {"tolerations": ({"key": "gpu"},)}
        }

    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            ("on", "true"),
            ("no", "false"),
            ("1", "1 (int)"),
            ("0.010", "0.01 (float)"),
            ("~", "null"),
        ],
    )
    def test_yaml_scalars_that_are_not_text_must_be_quoted(self, value: str, shown: str) -> None:
        with pytest.raises(SerializationError) as error:
            from_yaml(f"name: a\nroles: [{{name: r, image: i, env: {{A: {value}}}}}]")
        assert str(error.value).startswith(f"YAML: roles[0].env.A: expected text, got {shown}")

    @pytest.mark.parametrize(
        "text",
        [
            *["no", "on", "Yes", "null", "~", "", "1", "010", "0x1F", "1e3", "1_000", ".5", "1:30"],
            *["y", "2024-01-02", "a: b", "- a", "# x", "{a}", "'", '"', "%x", "@x", "`x`", "!x"],
            *["&a", "*a", "a\nb", "a\nb\n", "\n", "\n a", " a", "a ", "a \nb", "\ta\n", "a\r\nb"],
            *["\x85", "\u2028", "\ufeffx", "\x00", "\x1b[0m", "é日本😀", "\ud800", "\udcff"],
            *["a" * 300, "a " * 200, "---", "..."],
        ],
    )
    def test_any_text_survives_yaml(self, text: str) -> None:
        app = AppDef(text, roles=[Role("r", image="i", args=[text], env={"A": text, "B": text})])
        app.metadata = {"k": text, text: "v"}
        assert from_yaml(to_yaml(app)) == app
        assert from_json(to_json(app)) == app

    @pytest.mark.parametrize("text", ["1e3", "0o7", "y", "N", "1.", "no", "007"])
    def test_ambiguous_text_is_quoted(self, text: str) -> None:
        assert f"name: '{text}'\n" in to_yaml(AppDef(text))

    def test_scripts_are_readable_blocks(self) -> None:
        app = AppDef("a", roles=[Role("r", image="i", args=["-c", "set -e\npython x.py\n"])])
        assert "    args:\n      - -c\n      - |\n        set -e\n        python x.py\n" in to_yaml(
            app
        )

    def test_shared_lists_are_written_twice_not_as_anchors(self) -> None:
        shared = ["x"]
        app = AppDef("a", roles=[Role(n, image="i", args=shared) for n in ("r", "p")])
        assert "&" not in to_yaml(app)
        assert from_yaml(to_yaml(app)) == app

    def test_anchors_and_merge_keys_can_be_read(self) -> None:
        app = from_yaml(
            """
            name: a
            roles:
              - &base {name: r, image: i, args: [x]}
              - {<<: *base, name: p}
            """
        )
        assert [(role.name, role.args) for role in app.roles] == [("r", ["x"]), ("p", ["x"])]

    @pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML does not include libyaml")
    def test_libyaml_reads_a_document_without_lone_surrogates(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """PyYAML alone needs 14 s for a document of 4 MB."""
        app = AppDef("a", metadata={"text": "a"})
        text = to_yaml(app)
        monkeypatch.setattr(yaml.SafeLoader, "get_single_node", None)
        assert from_yaml(text) == app

    def test_without_the_library_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "yaml", None)
        for action in (lambda: to_yaml(AppDef("a")), lambda: from_yaml("name: a")):
            with pytest.raises(ValueError, match=r"torchx-specs\[yaml\]"):
                action()
        assert load('{"name": "a"}') == AppDef("a")


class TestBadText:
    @pytest.mark.parametrize(
        ("read", "text", "problem"),
        [
            (from_json, "{", "JSON: not valid JSON: Expecting property name"),
            (from_json, '{"name": NaN}', "JSON: NaN is not a JSON number"),
            (from_json, '{"name": ' + "9" * 5000 + "}", "JSON: not valid JSON: Exceeds the limit"),
            (
                from_json,
                '{"name": "a", "name": "b"}',
                "JSON: key 'name' is given twice in one object",
            ),
            (from_json, '{"name": 5}', "JSON: name: expected text, got 5 (int)"),
            (from_json, "[" * 100_000, "JSON: nested deeper than 100 levels"),
            (from_json, "[" * 101 + "]" * 101, "JSON: nested deeper than 100 levels"),
            (from_yaml, "[" * 101 + "]" * 101, "YAML: nested deeper than 100 levels"),
            (from_yaml, "- " * 5000, "YAML: "),
            (
                from_json,
                '{"name": "a", "metadata": {"a": 1e999}}',
                "JSON: metadata.a: JSON has no num",
            ),
            (
                from_yaml,
                "name: a\nname: b",
                "YAML: not valid YAML: key 'name' is given twice (line 2",
            ),
            (from_yaml, "name: [", "YAML: not valid YAML: while parsing"),
            (
                from_yaml,
                "name: a\n---\nname: b",
                "YAML: not valid YAML: expected a single document",
            ),
            (
                from_yaml,
                "name: !!python/name:os.system x",
                "YAML: not valid YAML: could not determine",
            ),
            (from_yaml, "name: 2024-13-45", "YAML: not valid YAML: month must be in 1..12"),
            (
                from_yaml,
                "{[a]: {b: c}}",
                "YAML: not valid YAML: while constructing a mapping found",
            ),
            (from_yaml, "", "YAML: expected a mapping, got null"),
            (from_yaml, "&a [*a]", "YAML: nested deeper than 100 levels, or contains itself"),
            (load, "name: a\nrolls: []", "document: rolls: unknown field; did you mean 'roles'?"),
        ],
    )
    def test_is_one_line(self, read: Any, text: str, problem: str) -> None:
        with pytest.raises(SerializationError) as error:
            read(text)
        assert str(error.value).startswith(problem)
        assert "\n" not in str(error.value)


def test_garbage_is_collected_again_after_a_malformed_document() -> None:
    with pytest.raises(SerializationError):
        from_yaml("name: [")
    assert gc.isenabled()


class TestLoad:
    @pytest.mark.parametrize(("name", "write"), [("job.json", to_json), ("job.yaml", to_yaml)])
    def test_reads_a_file(self, tmp_path: Path, name: str, write: Any) -> None:
        path = tmp_path / name
        path.write_text(write(full_app()), encoding="utf-8")
        assert load(path) == load(str(path)) == full_app()

    def test_a_json_file_is_never_taken_for_yaml(self, tmp_path: Path) -> None:
        path = tmp_path / "job.json"
        path.write_text("name: a")
        with pytest.raises(SerializationError, match=r"job\.json: not valid JSON"):
            load(path)

    def test_names_the_file_in_every_problem(self, tmp_path: Path) -> None:
        path = tmp_path / "job.yaml"
        path.write_text("nam: a\nroles: 5\n")
        with pytest.raises(SerializationError) as error:
            load(path)
        assert error.value.problems == (
            f"{path}: missing field 'name'",
            f"{path}: nam: unknown field; did you mean 'name'?",
            f"{path}: roles: expected a list, got 5 (int)",
        )

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(SerializationError, match=r"nope\.yaml: no such file or directory"):
            load(tmp_path / "nope.yaml")

    def test_a_directory_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(SerializationError, match="is a directory"):
            load(str(tmp_path))

    def test_bytes_that_are_no_text_are_named(self, tmp_path: Path) -> None:
        path = tmp_path / "job.yaml"
        path.write_bytes(b"name: \xff\n")
        with pytest.raises(SerializationError, match=r"job\.yaml: not UTF-8 text .* at byte 6"):
            load(path)


# Any text; lone surrogates represent bytes that are not UTF-8.
TEXT = st.text(st.characters(exclude_categories=[]), max_size=12) | st.sampled_from(
    [
        "no",
        "on",
        "1",
        "1e3",
        "${app_id}",
        "a\nb\n",
        " a\n\n b",
        "\x85",
        "$tuple",
        "$dict",
        "__put__:x",
    ]
)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(TEXT, inner, max_size=3)
    ),
    max_leaves=6,
)
PLAIN_DICTS = st.dictionaries(TEXT, PLAIN, max_size=3)
TEXTS = st.dictionaries(TEXT, TEXT, max_size=3)
RESOURCES = st.builds(
    Resource,
    cpu=st.integers(),
    gpu=st.integers() | st.floats(0, 8),
    memMB=st.integers(),
    capabilities=PLAIN_DICTS,
    devices=st.dictionaries(TEXT, st.integers(), max_size=2),
    tags=PLAIN_DICTS,
)
MOUNTS = (
    st.builds(BindMount, TEXT, TEXT, st.booleans())
    | st.builds(VolumeMount, TEXT, TEXT, st.booleans())
    | st.builds(DeviceMount, TEXT, TEXT, TEXT)
)
ROLES = st.builds(
    Role,
    name=TEXT,
    image=TEXT,
    min_replicas=st.none() | st.integers(),
    entrypoint=TEXT,
    args=st.lists(TEXT, max_size=4),
    env=TEXTS,
    num_replicas=st.integers(max_value=MAX_REPLICAS),
    max_retries=st.integers(),
    retry_policy=st.sampled_from(RetryPolicy),
    resource=st.just(NULL_RESOURCE) | RESOURCES,
    port_map=st.dictionaries(TEXT, st.integers(), max_size=2),
    metadata=PLAIN_DICTS,
    mounts=st.lists(MOUNTS, max_size=3),
    workspace=st.none() | st.builds(Workspace, TEXTS),
    overrides=st.just({}),
)
APPS = st.builds(AppDef, name=TEXT, roles=st.lists(ROLES, max_size=2), metadata=PLAIN_DICTS)


@settings(max_examples=60)
@given(APPS)
def test_any_app_is_the_same_after_a_round_trip(app: AppDef) -> None:
    data = to_dict(app)
    assert repr(from_dict(data)) == repr(app)
    assert repr(from_json(to_json(app))) == repr(app)
    assert repr(from_yaml(to_yaml(app))) == repr(app)
    to_json(app).encode()
    to_yaml(app).encode()
    SCHEMA.validate(data)


def test_examples_in_the_docstrings() -> None:
    result = doctest.testmod(serialize)
    assert result.attempted == 3
    assert result.failed == 0
