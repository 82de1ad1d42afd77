"""Tags made of metadata."""

from __future__ import annotations

import pytest

from torchx_sched_aws.tags import MOST_TAGS, current_user, make_tags, tag_value
from torchx_specs.errors import RequestError
from torchx_specs.version import __version__


def test_ours_and_those_of_the_app() -> None:
    assert make_tags("my app", "me", {"a": "b", "n": 1.5, "overlay": {}, "list": []}) == {
        "torchx.pytorch.org/version": __version__,
        "torchx.pytorch.org/app-name": "my app",
        "torchx.pytorch.org/user": "me",
        "a": "b",
        "n": "1.5",
    }


def test_values_that_aws_does_not_take() -> None:
    assert tag_value("a,b;c\u2603d e_é.:/=+-@") == "a_b_c_d e_é.:/=+-@"
    assert len(tag_value("x" * 1000)) == 256


def test_what_cannot_be_a_tag() -> None:
    with pytest.raises(RequestError) as caught:
        make_tags("a", "b", {"aws:x": "1", " ": "2", **{str(i): "x" for i in range(MOST_TAGS)}})
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_current_user_is_unknown_without_an_account(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def getuser() -> str:
        raise error

    monkeypatch.setattr("torchx_sched_aws.tags.getuser", getuser)
    assert current_user() == "unknown"
