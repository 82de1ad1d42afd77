"""Tests of app handles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_specs import (
    AppHandle,
    MalformedAppHandleException,
    ParsedAppHandle,
    make_app_handle,
    parse_app_handle,
)


@pytest.mark.parametrize(
    ("handle", "parsed"),
    [
        ("k8s://default/foo_bar", ("k8s", "default", "foo_bar")),
        ("k8s:///foo_bar", ("k8s", "", "foo_bar")),
        ("kubernetes://torchx/ns:job-1", ("kubernetes", "torchx", "ns:job-1")),
        ("slurm://torchx/42", ("slurm", "torchx", "42")),
        # As in upstream, the last `/` separates the session from the app id.
        ("a://s/x/y", ("a", "s/x", "y")),
        ("a://b://c/d", ("a://b", "c", "d")),
        ("local_cwd://se ssion/ü", ("local_cwd", "se ssion", "ü")),
    ],
)
def test_parse(handle: str, parsed: tuple[str, str, str]) -> None:
    assert parse_app_handle(handle) == ParsedAppHandle(*parsed)


@pytest.mark.parametrize(
    "handle",
    ["", "foo", "foo/bar", "a://b", "a://b/", "a:///", "://b/c", "a:/b/c", "/b/c", "a://b/c\nd"],
)
def test_malformed(handle: str) -> None:
    with pytest.raises(MalformedAppHandleException) as raised:
        parse_app_handle(handle)
    form = "<scheduler_backend>://<session_name>/<app_id>"
    assert str(raised.value) == f"{handle} is not of the form: {form}"
    assert raised.value.app_handle == handle
    assert isinstance(raised.value, ValueError)


names = st.text(st.characters(exclude_characters="/\n", codec="utf-8"), min_size=1)
sessions = st.text(st.characters(exclude_characters="/\n", codec="utf-8"))


@given(st.from_regex(r"[a-z0-9_]+", fullmatch=True), sessions, names)
def test_made_handles_can_be_parsed(scheduler: str, session: str, app: str) -> None:
    handle: AppHandle = make_app_handle(scheduler, session, app)
    assert parse_app_handle(handle) == (scheduler, session, app)


def test_repr() -> None:
    assert repr(parse_app_handle("k8s://default/foo_bar")) == (
        "ParsedAppHandle(scheduler_backend='k8s', session_name='default', app_id='foo_bar')"
    )
