"""Masking of secrets."""

from __future__ import annotations

import pytest

from torchx_specs import InvalidRunConfigException, runopts
from torchx_specs.redaction import MASK, is_secret, masked


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("token", True),
        ("apiKey", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("db_password", True),
        ("queue", False),
        ("key_name", False),
        ("tokenizer", False),
    ],
)
def test_names(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


def test_nested_values_and_urls() -> None:
    given = {"a": [{"token": "t"}, "https://me:pw@host/x"], "password": "", "n": 1}
    assert masked(given) == {
        "a": [{"token": MASK}, f"https://me:{MASK}@host/x"],
        "password": "",
        "n": 1,
    }
    assert given["a"] == [{"token": "t"}, "https://me:pw@host/x"]


def test_an_error_about_options_shows_no_secret() -> None:
    opts = runopts()
    opts.add("api_token", type_=str, help="")
    with pytest.raises(InvalidRunConfigException) as caught:
        opts.resolve({"api_token": "s3cret", "qeue": "x"})
    assert "s3cret" not in str(caught.value)
    assert "qeue" in str(caught.value)
