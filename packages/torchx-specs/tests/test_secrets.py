"""Tests of references to secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from torchx_specs import (
    AppDef,
    AppDryRunInfo,
    RequestError,
    Resource,
    Role,
    SecretRef,
    macros,
    parse_secret,
    secret,
)
from torchx_specs.formats import serialize
from torchx_specs.redaction import masked
from torchx_specs.schedulers import DescribeAppResponse, ListAppResponse, Scheduler
from torchx_specs.schedulers.features import SchedulerFeatures
from torchx_specs.schedulers.request_checks import secret_problems


@pytest.mark.parametrize(
    ("name", "key", "text"),
    [
        ("hf", None, "${secret:hf}"),
        ("team-a.hf2", None, "${secret:team-a.hf2}"),
        ("db", "PASS_word.1-x", "${secret:db/PASS_word.1-x}"),
    ],
)
def test_a_reference_is_a_text_that_is_parsed(name: str, key: str | None, text: str) -> None:
    reference = secret(name, key)
    assert reference == text
    assert type(reference) is str
    assert parse_secret(text) == SecretRef(name, key)


@pytest.mark.parametrize("value", ["", "hf", "$secret", "${app_id}", "${secret}", "x ${secret:hf}"])
def test_other_values_are_no_references(value: str) -> None:
    assert parse_secret(value) is None


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *[(name, None) for name in ("", "..", ".", "/etc/passwd", "../x", "a/../b", "HF", "a b")],
        *[(name, None) for name in ("a..b", "-a", "a-", ".a", "a\n", "0", "a" * 254, "é", "a\0")],
        *[
            ("a", key)
            for key in ("", ".", "..", "../x", "a/b", "-x", ".x", "a b", "k\n", "k" * 254)
        ],
    ],
)
def test_an_invalid_name_or_key_is_one_line(name: str, key: str | None) -> None:
    with pytest.raises(RequestError, match=r"is not a valid (name|key) of a secret") as e:
        secret(name, key)
    assert len(str(e.value).splitlines()) == 1
    with pytest.raises(RequestError):
        parse_secret(f"${{secret:{name}{'' if key is None else f'/{key}'}}}")


def app(**role: Any) -> AppDef:
    settings = {"image": "i", "entrypoint": "e", "resource": Resource(1, 0, 64), **role}
    return AppDef("a", [Role("worker", **settings)])


REFERENCE = "${secret:hf}"


def test_an_invalid_reference_in_env_names_the_variable() -> None:
    (problem,) = secret_problems(app(env={"A": "${secret:../x}"}), "s", True)
    assert problem.startswith("role 'worker': env['A']: '${secret:../x}': '..' is not a valid name")


def test_a_reference_survives_json_and_macros_and_is_not_masked() -> None:
    original = app(env={"HF_TOKEN": secret("hf"), "DB_PASSWORD": secret("db", "pw")})
    copied = serialize.from_json(serialize.to_json(original))
    assert copied == original
    rendered = macros.Values("", "id", "0").apply(copied.roles[0])
    assert rendered.env == original.roles[0].env
    assert masked(rendered.env) == original.roles[0].env


def test_what_only_looks_like_a_reference_is_masked() -> None:
    assert masked({"HF_TOKEN": "${secret:hf} hf_abc"}) == {"HF_TOKEN": "***"}


class _Unaware(Scheduler[Mapping[str, Any]]):
    def _submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[Any]:
        return AppDryRunInfo(app.roles[0].env, str)

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        return "id"

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        return None

    def list(self, cfg: Any = None) -> list[ListAppResponse]:
        return []

    def _cancel_existing(self, app_id: str) -> None:
        pass


class _Aware(_Unaware):
    features = SchedulerFeatures(secrets=True)


def test_a_scheduler_that_does_not_resolve_references_refuses_them() -> None:
    with pytest.raises(RequestError) as e:
        _Unaware("theirs", "s").submit(app(env={"HF_TOKEN": REFERENCE}), {})
    assert str(e.value) == (
        "role 'worker': env['HF_TOKEN'] refers to the secret 'hf', but the scheduler theirs does"
        " not resolve references to secrets; read the secret in the program instead"
    )
    assert _Unaware("theirs", "s").submit(app(env={"HF_TOKEN": "x"}), {}) == "id"


def test_a_scheduler_that_resolves_references_receives_them() -> None:
    info = _Aware("theirs", "s").submit_dryrun(app(env={"HF_TOKEN": REFERENCE}), {})
    assert info.request == {"HF_TOKEN": REFERENCE}
