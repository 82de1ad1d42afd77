"""Tags of jobs."""

from __future__ import annotations

import pytest

from torchx_sched_aws.tags import MAX_TAGS, current_user, make_tags, tag_problems, tag_value
from torchx_specs.version import __version__


def test_tags_contain_metadata_of_simple_types() -> None:
    assert make_tags("my app", "me", {"a": "b", "n": 1.5, "overlay": {}, "list": []}) == {
        "torchx.pytorch.org/version": __version__,
        "torchx.pytorch.org/app-name": "my app",
        "torchx.pytorch.org/user": "me",
        "a": "b",
        "n": "1.5",
    }


def test_tag_value_replaces_and_cuts() -> None:
    assert tag_value("a,b;c\u2603d e_é.:/=+-@") == "a_b_c_d e_é.:/=+-@"
    assert len(tag_value("x" * 1000)) == 256


def test_invalid_tags_are_reported_together() -> None:
    tags = make_tags("a", "b", {"aws:x": "1", " ": "2", **{str(i): "x" for i in range(MAX_TAGS)}})
    problems = list(tag_problems(tags))
    assert len(problems) == 3
    assert problems[0].startswith("'aws:x' cannot be a tag")
    assert problems[2].startswith("55 tags: AWS allows 50 tags on a job, 47 besides")


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_current_user_is_unknown_without_an_account(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def getuser() -> str:
        raise error

    monkeypatch.setattr("torchx_sched_aws.tags.getuser", getuser)
    assert current_user() == "unknown"
