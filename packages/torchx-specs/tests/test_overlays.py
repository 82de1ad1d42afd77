"""Tests of overlays: operators, storage, files and validation."""

from __future__ import annotations

import copy
import dataclasses
import doctest
import enum
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from torchx_specs import overlays
from torchx_specs.errors import TorchXError
from torchx_specs.model.app import AppDef, Role
from torchx_specs.overlays import (
    DEL,
    JOIN,
    PUT,
    OverlaySpec,
    apply_overlay,
    get_overlay,
    set_overlay,
    validate_overlay,
)


def role(**metadata: Any) -> Role:
    return Role(name="trainer", image="my-image", entrypoint="train.py", metadata=metadata)


def applied(base: dict[str, Any], *laid: dict[str, Any]) -> dict[str, Any]:
    for overlay in laid:
        apply_overlay(base, overlay)
    return base


def accumulated(*laid: dict[str, Any]) -> dict[str, Any]:
    target = role()
    for overlay in laid:
        set_overlay(target, "k8s", "V1Pod", overlay)
    return get_overlay(target, "k8s", "V1Pod")


class TestExamplesOfTheReferencePage:
    def test_examples_in_the_docstrings(self) -> None:
        result = doctest.testmod(overlays)
        assert result.attempted >= 20
        assert result.failed == 0

    def test_put(self) -> None:
        base = {"containers": [{"name": "old1"}, {"name": "old2"}]}
        assert applied(base, {PUT("containers"): [{"name": "only"}]}) == {
            "containers": [{"name": "only"}]
        }

    def test_join(self) -> None:
        base = {"containers": [{"name": "main", "image": "v1"}]}
        overlay = {JOIN("containers", on="name"): [{"name": "main", "memory": "1Gi"}]}
        assert applied(base, overlay) == {
            "containers": [{"name": "main", "image": "v1", "memory": "1Gi"}]
        }

    def test_del(self) -> None:
        assert applied({"keep": 1, "remove": "old"}, {DEL("remove"): None}) == {"keep": 1}

    def test_operators_are_kept_in_metadata_until_they_are_applied(self) -> None:
        target = role()
        set_overlay(
            target, "kubernetes", "V1Pod", {"spec": {PUT("containers"): [{"name": "only"}]}}
        )
        set_overlay(
            target,
            "kubernetes",
            "V1Pod",
            {"spec": {JOIN("initContainers", on="name"): [{"name": "setup", "image": "init:v2"}]}},
        )
        set_overlay(target, "kubernetes", "V1Pod", {DEL("hostNetwork"): None})
        request = {
            "spec": {
                "containers": [{"name": "a"}, {"name": "b"}],
                "initContainers": [{"name": "setup", "image": "init:v1", "tty": True}],
            },
            "hostNetwork": True,
        }
        apply_overlay(request, get_overlay(target, "kubernetes", "V1Pod"))
        assert request == {
            "spec": {
                "containers": [{"name": "only"}],
                "initContainers": [{"name": "setup", "image": "init:v2", "tty": True}],
            }
        }


@pytest.mark.parametrize(
    ("base", "overlay", "expected"),
    [
        pytest.param({"a": 1}, {}, {"a": 1}, id="nothing to lay over"),
        pytest.param({}, {"a": {"b": 1}}, {"a": {"b": 1}}, id="new key"),
        pytest.param({"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}}, id="dicts merge"),
        pytest.param(
            {"a": {"b": {"l": [1]}}},
            {"a": {"b": {"l": [2]}}},
            {"a": {"b": {"l": [1, 2]}}},
            id="deep",
        ),
        pytest.param({"a": [1]}, {"a": (2,)}, {"a": [2]}, id="a tuple replaces a list"),
        pytest.param({}, {"a": (2, 3)}, {"a": [2, 3]}, id="a tuple arrives as a list"),
        pytest.param({"a": 1}, {"a": (2, 3)}, {"a": [2, 3]}, id="a tuple replaces a value"),
        pytest.param(
            {"a": {"b": [1]}}, {"a": {"b": ()}}, {"a": {"b": []}}, id="an empty tuple empties"
        ),
        pytest.param({"a": 1}, {"a": "x"}, {"a": "x"}, id="primitives overwrite"),
        pytest.param({"a": {"b": 1}}, {"a": None}, {"a": None}, id="None sets null over a dict"),
        pytest.param({"a": [1]}, {"a": None}, {"a": None}, id="None sets null over a list"),
        pytest.param({"a": None}, {"a": {"b": 1}}, {"a": {"b": 1}}, id="anything replaces null"),
        pytest.param({"a": {"b": 1}}, {PUT("a"): [1]}, {"a": [1]}, id="PUT replaces another shape"),
        pytest.param({}, {PUT("a"): 1}, {"a": 1}, id="PUT of a new key"),
        pytest.param({}, {DEL("a"): None}, {}, id="DEL of what is not there"),
        pytest.param(
            {}, {"a": {PUT("x"): 1, DEL("y"): None}}, {"a": {"x": 1}}, id="below a new key"
        ),
        pytest.param({"a": []}, {"a": [{PUT("x"): 1}]}, {"a": [{"x": 1}]}, id="in a list item"),
        pytest.param(
            {}, {JOIN("c", on="n"): [{"n": 1}]}, {"c": [{"n": 1}]}, id="JOIN of a new key"
        ),
        pytest.param(
            {"c": None}, {JOIN("c", on="n"): [{"n": 1}]}, {"c": [{"n": 1}]}, id="JOIN on null"
        ),
        pytest.param(
            {"c": [{"n": 1}]},
            {JOIN("c", on="n"): [{"m": 1}]},
            {"c": [{"n": 1}, {"m": 1}]},
            id="JOIN appends an item without the field",
        ),
        pytest.param(
            {"c": [{"n": 1, "l": [1], "d": {"a": 1}}]},
            {JOIN("c", on="n"): [{"n": 1, "l": [2], "d": {"b": 2}}]},
            {"c": [{"n": 1, "l": [2], "d": {"b": 2}}]},
            id="JOIN overwrites fields of the item",
        ),
        pytest.param(
            {"c": [{"n": 1, "env": [{"name": "A", "value": "1"}], "x": 1}]},
            {
                JOIN("c", on="n"): [
                    {"n": 1, JOIN("env", on="name"): [{"name": "B", "value": "2"}], DEL("x"): None}
                ]
            },
            {"c": [{"n": 1, "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}]},
            id="operators work inside items of JOIN",
        ),
        pytest.param({"a:b": 1}, {PUT("a:b"): 2}, {"a:b": 2}, id="PUT of a key with a colon"),
        pytest.param(
            {"a:b": [{"n": 1}]},
            {JOIN("a:b", on="n"): [{"n": 1, "x": 2}]},
            {"a:b": [{"n": 1, "x": 2}]},
            id="JOIN of a key with a colon",
        ),
        pytest.param(
            {"__init__": 1}, {"__init__": 2}, {"__init__": 2}, id="underscores are no operator"
        ),
        pytest.param(
            {1: {"a": 1}}, {1: {"b": 2}}, {1: {"a": 1, "b": 2}}, id="keys need not be strings"
        ),
    ],
)
def test_apply(base: dict[str, Any], overlay: dict[str, Any], expected: dict[str, Any]) -> None:
    before = copy.deepcopy(overlay)
    assert applied(base, overlay) == expected
    assert overlay == before


@pytest.mark.parametrize(
    ("base", "overlay", "message"),
    [
        ({"s": {"a": 1}}, {"s": {"a": {"x": 1}}}, "`s.a`. int != dict"),
        ({"a": [1]}, {"a": 5}, "`a`. list != int"),
        ({"a": 5}, {"a": [1]}, "`a`. int != list"),
        ({"a": {"x": 1}}, {"a": [1]}, "`a`. dict != list"),
        ({"a": {"x": 1}}, {"a": (1,)}, "`a`. dict != tuple"),
        ({"c": [1]}, {JOIN("c", on="n"): [{"n": 1}]}, "in the base item 0 is a int"),
        ({"c": 5}, {JOIN("c", on="n"): [{"n": 1}]}, "needs a list in the base, got int"),
        ({"c": []}, {JOIN("c", on="n"): {"n": 1}}, "needs a list in the overlay, got dict"),
        ({"c": []}, {JOIN("c", on="n"): [{"n": 1}, 5]}, "in the overlay item 1 is a int"),
    ],
)
def test_a_mismatch_is_a_type_error_with_the_path(
    base: dict[str, Any], overlay: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError) as error:
        apply_overlay(base, overlay)
    assert message in str(error.value)
    assert isinstance(error.value, TorchXError)


def test_the_result_shares_nothing_with_the_overlay() -> None:
    overlay = {"a": {"b": [1]}, PUT("c"): {"d": [1]}, JOIN("e", on="n"): [{"n": 1, "l": []}]}
    base: dict[str, Any] = {}
    apply_overlay(base, overlay)
    base["a"]["b"].append(2)
    base["c"]["d"].append(2)
    base["e"][0]["l"].append(2)
    assert overlay == {
        "a": {"b": [1]},
        PUT("c"): {"d": [1]},
        JOIN("e", on="n"): [{"n": 1, "l": []}],
    }


def test_lists_of_the_base_grow_in_place() -> None:
    containers = [{"name": "a"}]
    apply_overlay({"spec": {"containers": containers}}, {"spec": {"containers": [{"name": "b"}]}})
    assert containers == [{"name": "a"}, {"name": "b"}]


def test_join_on_a_field_with_a_colon_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot contain a colon"):
        JOIN("containers", on="a:b")


class TestAccumulation:
    @pytest.mark.parametrize(
        ("laid", "expected"),
        [
            ([{"c": [1]}, {"c": [2]}], {"c": [1, 2]}),
            ([{"c": {"x": 1}}, {"c": {"y": [1]}}], {"c": {"x": 1, "y": [1]}}),
            ([{"c": [1]}, {PUT("c"): [2]}], {PUT("c"): [2]}),
            ([{PUT("c"): [1]}, {PUT("c"): [2]}], {PUT("c"): [2]}),
            ([{PUT("c"): [1]}, {DEL("c"): None}], {DEL("c"): None}),
            ([{DEL("c"): None}, {"c": [2]}], {"c": [2]}),
            ([{"s": {"c": [1]}}, {"s": {DEL("c"): None}}], {"s": {DEL("c"): None}}),
            (
                [{JOIN("c", on="n"): [{"n": 1}]}, {JOIN("c", on="n"): [{"n": 2}]}],
                {JOIN("c", on="n"): [{"n": 1}, {"n": 2}]},
            ),
            (
                [
                    {JOIN("c", on="n"): [{"n": 1, "a": 1, PUT("b"): 1}]},
                    {JOIN("c", on="n"): [{"n": 1, DEL("b"): None}]},
                ],
                {JOIN("c", on="n"): [{"n": 1, "a": 1, DEL("b"): None}]},
            ),
            (
                [
                    {JOIN("c", on="n"): [{"n": 1, JOIN("env", on="k"): [{"k": "A"}]}]},
                    {JOIN("c", on="n"): [{"n": 1, JOIN("env", on="k"): [{"k": "B"}]}]},
                ],
                {JOIN("c", on="n"): [{"n": 1, JOIN("env", on="k"): [{"k": "A"}, {"k": "B"}]}]},
            ),
            (
                [{"c": [{"n": 1}]}, {JOIN("c", on="n"): [{"n": 2}]}],
                {JOIN("c", on="n"): [{"n": 1}, {"n": 2}]},
            ),
            ([{JOIN("c", on="n"): [{"n": 1}]}, {DEL("c"): None}], {DEL("c"): None}),
            ([{DEL("c"): None}, {PUT("c"): [1]}], {PUT("c"): [1]}),
            ([{PUT("c"): [1]}, {"c": [2]}], {"c": [2]}),
            (
                [{JOIN("c", on="n"): [{"n": 1}]}, {JOIN("c", on="m"): [{"m": 2}]}],
                {JOIN("c", on="m"): [{"m": 2}]},
            ),
            ([{"c": [1]}, {"c": None}], {"c": None}),
            ([{"c": None}, {"c": [1]}], {"c": [1]}),
        ],
    )
    def test_the_last_operator_for_a_field_wins(
        self, laid: list[dict[str, Any]], expected: dict[str, Any]
    ) -> None:
        assert accumulated(*laid) == expected

    @pytest.mark.parametrize(
        ("laid", "expected"),
        [
            ([{"c": [1]}, {"c": (2,)}], [2]),
            ([{"c": (1,)}, {"c": [2]}], [1, 2]),
        ],
    )
    def test_tuple_replaces_when_applied(
        self, laid: list[dict[str, Any]], expected: list[int]
    ) -> None:
        assert applied({"c": [0]}, accumulated(*laid)) == {"c": expected}

    def test_a_mismatch_names_the_field(self) -> None:
        with pytest.raises(TypeError, match=r"`spec\.c`"):
            accumulated({"spec": {"c": 1}}, {"spec": {"c": [2]}})

    def test_neither_argument_nor_result_is_shared_with_the_metadata(self) -> None:
        overlay = {"spec": {"l": [1]}}
        target = role()
        set_overlay(target, "k8s", "V1Pod", overlay)
        get_overlay(target, "k8s", "V1Pod")["spec"]["l"].append(9)
        set_overlay(target, "k8s", "V1Pod", {"spec": {"l": [2]}})
        assert overlay == {"spec": {"l": [1]}}
        assert get_overlay(target, "k8s", "V1Pod") == {"spec": {"l": [1, 2]}}

    def test_kinds_of_one_namespace_are_separate(self) -> None:
        target = role()
        set_overlay(target, "k8s", "V1Pod", {"a": 1})
        set_overlay(target, "k8s", "V1Job", {"b": 1})
        assert get_overlay(target, "k8s", "V1Pod") == {"a": 1}
        assert get_overlay(target, "k8s", "V1Job") == {"b": 1}
        assert get_overlay(target, "k8s", "V1Service") == {}
        assert get_overlay(target, "slurm", "Job") == {}

    def test_an_app_takes_overlays_too(self) -> None:
        app = AppDef(name="app")
        set_overlay(app, "k8s", "V1Job", {"a": 1})
        assert get_overlay(app, "k8s", "V1Job") == {"a": 1}

    def test_a_dataclass_gives_the_fields_that_are_set(self) -> None:
        class Mode(enum.Enum):
            FAST = "fast"

        @dataclasses.dataclass
        class Spec:
            a: int | None = None
            mode: Mode = Mode.FAST
            inner: Any = None

        target = role()
        set_overlay(target, "k8s", "V1Pod", Spec(inner={PUT("x"): (Spec(a=1),)}))
        assert get_overlay(target, "k8s", "V1Pod") == {
            "mode": "fast",
            "inner": {PUT("x"): ({"a": 1, "mode": "fast"},)},
        }

    def test_other_overlay_types_are_refused(self) -> None:
        with pytest.raises(TypeError, match="V1Pod is not an overlay: expected a dict, got list"):
            set_overlay(role(), "k8s", "V1Pod", [1])


class TestFlatOverlays:
    FLAT = {"spec": {"x": 1}, "apiVersion": "v1"}

    @pytest.mark.parametrize("flat", [FLAT, {"spec": {"x": 1}}, {"a": 1}])
    def test_flat_overlay_is_returned_with_a_warning(
        self, flat: dict[str, Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        assert get_overlay(role(k8s=flat), "k8s", "V1Pod") == flat
        [record] = caplog.records
        assert (record.name, record.levelname) == ("torchx.specs.overlays", "WARNING")
        assert "no overlay of kind 'V1Pod'" in record.getMessage()

    @pytest.mark.parametrize(
        "stored", [{"pod": {"a": 1}, "job": {"b": 1}}, {"V1Job": {"a": 1}}, 5, [1]]
    )
    def test_other_kinds_and_other_values_are_no_flat_overlay(self, stored: Any) -> None:
        assert get_overlay(role(k8s=stored), "k8s", "V1Pod") == {}

    def test_set_overlay_keeps_another_kind(self) -> None:
        target = role(k8s={"V1Job": {"a": 1}})
        set_overlay(target, "k8s", "V1Pod", {"b": 2})
        assert get_overlay(target, "k8s", "V1Job") == {"a": 1}
        assert get_overlay(target, "k8s", "V1Pod") == {"b": 2}

    @pytest.mark.parametrize("stored", [5, [1], "overlay.json"])
    def test_set_overlay_replaces_a_value_that_is_not_a_dict(
        self, stored: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        target = role(k8s=stored)
        set_overlay(target, "k8s", "V1Pod", {"a": 1})
        assert get_overlay(target, "k8s", "V1Pod") == {"a": 1}
        assert "set_overlay() replaces metadata['k8s']" in caplog.text

    def test_flat_overlay_can_be_excluded(self) -> None:
        assert get_overlay(role(k8s=self.FLAT), "k8s", "V1Job", flat_fallback=False) == {}

    def test_flat_overlay_is_merged_into_later_ones(self) -> None:
        target = role(k8s=copy.deepcopy(self.FLAT))
        set_overlay(target, "k8s", "V1Pod", {"spec": {"y": 2}})
        assert get_overlay(target, "k8s", "V1Pod") == {
            "spec": {"x": 1, "y": 2},
            "apiVersion": "v1",
        }

    @pytest.mark.parametrize(
        "stored", [{"V1Pod": {"a": 1}}, {"V1Pod": {"a": 1}, "V1Job": {"b": 1}}]
    )
    def test_overlay_by_kind_needs_no_marker(self, stored: dict[str, Any]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert get_overlay(role(k8s=stored), "k8s", "V1Pod") == {"a": 1}

    def test_setting_another_kind_beside_hand_written_ones_keeps_them(self) -> None:
        target = role(k8s={"V1Pod": {"a": 1}, "V1Job": {"b": 1}})
        set_overlay(target, "k8s", "V1Pod", {"c": 2})
        assert get_overlay(target, "k8s", "V1Pod") == {"a": 1, "c": 2}
        assert get_overlay(target, "k8s", "V1Job") == {"b": 1}

    @pytest.mark.parametrize("stored", [None, "", {}, {"V1Pod": None}])
    def test_missing_overlay_is_empty(self, stored: Any) -> None:
        assert get_overlay(role(k8s=stored), "k8s", "V1Pod") == {}

    @pytest.mark.parametrize(
        ("stored", "where"),
        [({"V1Pod": 5}, "metadata['k8s']['V1Pod']"), ({"V1Pod": [1]}, "metadata['k8s']['V1Pod']")],
    )
    def test_stored_values_of_wrong_types_are_named(self, stored: Any, where: str) -> None:
        with pytest.raises(TypeError) as error:
            get_overlay(role(k8s=stored), "k8s", "V1Pod")
        assert where in str(error.value)


class TestFiles:
    OVERLAY = {"spec": {"nodeSelector": {"a": "b"}}}

    @pytest.fixture
    def json_file(self, tmp_path: Path) -> Path:
        path = tmp_path / "my overlay.json"
        path.write_text(json.dumps({"V1Pod": self.OVERLAY}))
        return path

    def test_json_by_path(self, json_file: Path) -> None:
        assert get_overlay(role(k8s=str(json_file)), "k8s", "V1Pod") == self.OVERLAY

    def test_json_by_file_uri(self, json_file: Path) -> None:
        assert get_overlay(role(k8s=json_file.as_uri()), "k8s", "V1Pod") == self.OVERLAY

    def test_local_json_needs_neither_fsspec_nor_yaml(
        self, json_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "fsspec", None)
        monkeypatch.setitem(sys.modules, "yaml", None)
        assert get_overlay(role(k8s=json_file.as_uri()), "k8s", "V1Pod") == self.OVERLAY

    def test_yaml_with_tuples(self, tmp_path: Path) -> None:
        path = tmp_path / "o.yaml"
        path.write_text("V1Pod:\n  spec:\n    tolerations: !!python/tuple [{key: gpu}]\n")
        overlay = get_overlay(role(k8s=str(path)), "k8s", "V1Pod")
        assert overlay == {"spec": {"tolerations": ({"key": "gpu"},)}}
        assert applied({"spec": {"tolerations": [{"key": "x"}]}}, overlay) == {
            "spec": {"tolerations": [{"key": "gpu"}]}
        }

    def test_a_flat_file_works_with_a_warning(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = tmp_path / "o.yaml"
        path.write_text("spec: {a: 1}\n")
        assert get_overlay(role(k8s=str(path)), "k8s", "V1Pod") == {"spec": {"a": 1}}
        assert "is used as a flat overlay" in caplog.text

    def test_a_file_for_one_kind(self, tmp_path: Path) -> None:
        path = tmp_path / "pod.json"
        path.write_text(json.dumps(self.OVERLAY))
        assert get_overlay(role(k8s={"V1Pod": str(path)}), "k8s", "V1Pod") == self.OVERLAY

    def test_setting_an_overlay_keeps_that_of_a_file_for_one_kind(self, tmp_path: Path) -> None:
        path = tmp_path / "pod.json"
        path.write_text(json.dumps(self.OVERLAY))
        target = role(k8s={"V1Pod": str(path)})
        set_overlay(target, "k8s", "V1Pod", {"spec": {"b": 2}})
        assert get_overlay(target, "k8s", "V1Pod") == {"spec": {"nodeSelector": {"a": "b"}, "b": 2}}

    def test_any_uri_that_fsspec_knows(self) -> None:
        import fsspec

        with fsspec.open("memory://overlays/o.yaml", "wt") as f:
            f.write("V1Pod: {spec: {a: 1}}")
        stored = role(k8s="memory://overlays/o.yaml")
        assert get_overlay(stored, "k8s", "V1Pod") == {"spec": {"a": 1}}

    def test_no_code_runs_from_a_yaml_file(self, tmp_path: Path) -> None:
        path = tmp_path / "o.yaml"
        path.write_text(f"V1Pod: !!python/object/apply:pathlib.Path.touch [{tmp_path}/owned]\n")
        with pytest.raises(ValueError, match="could not determine a constructor"):
            get_overlay(role(k8s=str(path)), "k8s", "V1Pod")
        assert not (tmp_path / "owned").exists()

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("o.json", "[1]", "must contain a mapping, got list"),
            ("o.yaml", "", "must contain a mapping, got NoneType"),
            ("o.json", '{"a": 1, "a": 2}', "key 'a' is given twice"),
            ("o.yaml", "{'a': 1, 'a': 2}", "key 'a' is given twice (line 1, column 10)"),
            ("o.json", '{"a": ', "not valid JSON: Expecting value (line 1, column 7)"),
            ("o.yaml", "a: [1", "not valid YAML"),
        ],
    )
    def test_a_bad_file_is_one_line_naming_it(
        self, tmp_path: Path, name: str, text: str, message: str
    ) -> None:
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(ValueError, match=r"o\.(json|yaml)") as error:
            get_overlay(role(k8s=str(path)), "k8s", "V1Pod")
        assert message in str(error.value)
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"nope\.yaml: no such file"):
            get_overlay(role(k8s=f"file://{tmp_path}/nope.yaml"), "k8s", "V1Pod")

    def test_an_unknown_protocol_is_named(self) -> None:
        with pytest.raises(ValueError, match=r"bogus://x/o\.yaml"):
            get_overlay(role(k8s="bogus://x/o.yaml"), "k8s", "V1Pod")

    def test_without_fsspec_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "fsspec", None)
        with pytest.raises(ValueError, match=r"s3://b/o\.yaml.*torchx-specs\[fsspec\]"):
            get_overlay(role(k8s="s3://b/o.yaml"), "k8s", "V1Pod")

    def test_without_yaml_the_extra_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "o.yaml").write_text("V1Pod: {}")
        monkeypatch.setitem(sys.modules, "yaml", None)
        with pytest.raises(ValueError, match=r"o\.yaml.*torchx-specs\[yaml\]"):
            get_overlay(role(k8s=f"{tmp_path}/o.yaml"), "k8s", "V1Pod")


class TestValidation:
    @pytest.mark.parametrize(
        "overlay", [{"env": 1}, {PUT("env"): 1}, {DEL("env"): None}, {JOIN("env", on="n"): []}]
    )
    def test_blocked_keys_are_named_whatever_the_operator(self, overlay: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r"`PodSpec\.env`"):
            validate_overlay(overlay, blocklist=["env", "command"], overlay_name="PodSpec")

    def test_all_of_them_are_named(self) -> None:
        with pytest.raises(ValueError, match=r"`overlay\.env`, `overlay\.command`"):
            validate_overlay({"env": 1, "ok": 2, "command": 3}, blocklist=["env", "command"])

    def test_misplaced_keys_come_with_the_suggestion(self) -> None:
        with pytest.raises(ValueError, match=r"PodSpec.*misplaced keys: `a`, `b`\. use JobSpec"):
            validate_overlay(
                {"a": 2, PUT("b"): 1},
                forbidden_keys={"b", "a"},
                overlay_name="PodSpec",
                suggestion="use JobSpec",
            )

    def test_only_top_level_keys_are_checked(self) -> None:
        validate_overlay({"spec": {"env": 1}}, blocklist=["env"], forbidden_keys={"command"})


class TestOverlaySpec:
    SPEC = OverlaySpec("k8s", "V1Pod", blocklist=("env",))

    def test_sets_and_gets_its_kind(self) -> None:
        target = role()
        self.SPEC.set(target, {"a": 1})
        assert self.SPEC.get(target) == {"a": 1} == get_overlay(target, "k8s", "V1Pod")

    def test_blocklist_is_refused_by_get_and_set(self) -> None:
        target = role()
        with pytest.raises(ValueError, match=r"`V1Pod\.env`"):
            self.SPEC.set(target, {"env": 1})
        assert target.metadata == {}
        set_overlay(target, "k8s", "V1Pod", {"env": 1})
        with pytest.raises(ValueError, match=r"`V1Pod\.env`"):
            self.SPEC.get(target)
