"""Tests of changing fields of app documents, and of comparing documents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from torchx_runner.submissions.changes import ABSENT, differences, with_fields
from torchx_specs import AppDef
from torchx_specs.errors import RequestError
from torchx_specs.formats import serialize


@pytest.fixture
def document(app: AppDef, new_role: Any) -> dict[str, Any]:
    app.roles.append(new_role("reader", env={"A": "1"}))
    return json.loads(serialize.to_json(app))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("name=other", {"name": "other"}),
        ("name=17", {"name": "17"}),
        ("metadata.k=1", {"metadata.k": 1}),
        ("reader.num_replicas=4", {"roles.reader.num_replicas": 4}),
        ("env.B=2", {"roles.main.env.B": "2", "roles.reader.env.B": "2"}),
        ("reader.env.A=x=y", {"roles.reader.env.A": "x=y"}),
        ("main.args.0=7", {"roles.main.args[0]": "7"}),
        ('main.args=["a","b"]', {"roles.main.args[0]": ["a", "b"]}),
        ("main.resource.memMB=128", {"roles.main.resource.memMB": 128}),
        ("main.image=img:1.0", {"roles.main.image": "img:1.0"}),
    ],
)
def test_a_field_is_changed(
    assignment: str, expected: dict[str, Any], document: dict[str, Any]
) -> None:
    changed = with_fields(document, [assignment])
    found = {d.path: d.after for d in differences(document, changed)}
    assert found == expected
    serialize.from_dict(changed)


@pytest.mark.parametrize(
    ("assignment", "error"),
    [
        ("env.B", "--set 'env.B': not of the form FIELD=VALUE"),
        ("=1", "not of the form FIELD=VALUE"),
        ("imag=x", "an app has no field or role 'imag'; did you mean 'image'?"),
        ("main.imag=x", "no field or role 'imag'; did you mean 'image'?"),
        ("main.args.1=x", "'1' is not the number of an item; the list has 1 items"),
        ("main.args.x=x", "'x' is not the number of an item"),
        ("main.image.x=x", "'x' is part of a value that has no parts"),
    ],
)
def test_a_wrong_assignment_is_an_error(
    assignment: str, error: str, document: dict[str, Any]
) -> None:
    with pytest.raises(RequestError) as caught:
        with_fields(document, [assignment])
    assert error in str(caught.value)


def test_a_value_of_a_wrong_type_is_an_error_of_the_document(document: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="num_replicas"):
        serialize.from_dict(with_fields(document, ["num_replicas=many"]))


def test_items_that_were_added_and_removed_are_aligned() -> None:
    found = list(differences(["a", "b", "c"], ["a", "x", "y", "b", "c"], "args"))
    assert found == [("args[1]", ABSENT, ["x", "y"], ("a", "a"))]
    found = list(differences(["a", "b", "c", "d"], ["a", "d"], "args"))
    assert found == [("args[1:3]", ["b", "c"], ABSENT, ("a", "a"))]


def test_equal_documents_have_no_differences(document: dict[str, Any]) -> None:
    assert list(differences(document, dict(document))) == []
    assert [d.path for d in differences({"a": 1}, {"a": True})] == ["a"]
