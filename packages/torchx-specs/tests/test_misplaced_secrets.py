"""Tests of finding references to secrets in places where no scheduler replaces them."""

from __future__ import annotations

from typing import Any

import pytest

from torchx_specs import AppDef, BindMount, RequestError, Resource, Role
from torchx_specs.schedulers.request_checks import secret_problems

REFERENCE = "${secret:hf}"


def app(**role: Any) -> AppDef:
    settings = {"image": "i", "entrypoint": "e", "resource": Resource(1, 0, 64), **role}
    return AppDef("a", [Role("worker", **settings)])


@pytest.mark.parametrize(
    ("role", "where"),
    [
        ({"env": {"URL": "https://u:${secret:hf}@h"}}, r"env\['URL'\]"),
        ({"args": ["x", "--token=${secret:hf/key}"]}, r"args\[1\]"),
        ({"args": [REFERENCE]}, r"args\[0\]"),
        ({"entrypoint": REFERENCE}, "entrypoint"),
        ({"image": "r/${secret:hf}"}, "image"),
        ({"metadata": {"a": [{"b": REFERENCE}]}}, r"metadata\['a'\]\[0\]\['b'\]"),
        ({"mounts": [BindMount(REFERENCE, "/x")]}, r"mounts\[0\]\['src_path'\]"),
    ],
)
def test_a_reference_elsewhere_is_a_problem_that_names_the_place(
    role: dict[str, Any], where: str
) -> None:
    (problem,) = secret_problems(app(**role), "s", True)
    pattern = rf"role 'worker': {where} contains \$\{{secret:hf.*\}}; a reference to a secret must"
    with pytest.raises(RequestError, match=pattern):
        raise RequestError(problem)


def test_only_overlays_for_a_scheduler_that_resolves_references_may_have_them() -> None:
    metadata = {"kubernetes": {"V1Pod": {"env": [{"name": "A", "value": REFERENCE}]}}}
    one = app(metadata=metadata)
    assert not list(secret_problems(one, "s", True))
    (problem,) = secret_problems(one, "s", False)
    assert "['env'][0]['value'] contains ${secret:hf}" in problem
    one.metadata = metadata
    (problem,) = secret_problems(one, "s", True)
    assert problem.startswith("metadata['kubernetes']")


def test_metadata_of_the_app_cannot_refer_to_a_secret() -> None:
    problems = secret_problems(AppDef("a", [], {"k": REFERENCE}), "s", True)
    assert [p.split(" contains ")[0] for p in problems] == ["metadata['k']"]


@pytest.mark.parametrize("arg", ["${secret:-x}", "${secret:0:5}", "${secret}", "$secret:hf", "${"])
def test_similar_texts_of_a_shell_are_no_problem(arg: str) -> None:
    assert not list(secret_problems(app(args=[arg], env={"A": REFERENCE}), "s", True))
