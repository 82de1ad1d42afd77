"""Tests of scheduler options as dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

import pytest

from torchx_specs import CfgVal, InvalidRunConfigException, StructuredOpts
from torchx_specs.options.structured import is_structured_opts


@dataclass
class Inner(StructuredOpts):
    context: str
    """Which cluster."""
    name_space: str = "default"
    """Where in it."""


@dataclass
class Opts(StructuredOpts):
    cluster_name: str
    """Name of the cluster
    to submit to.
    """

    num_retries: int = 3
    """Number of retry attempts."""

    tags: list[str] = field(default_factory=list)
    labels: Optional[dict[str, str]] = None
    renamed: str = field(default="r", metadata={"cfg_key": "otherName"})
    """Goes by another name."""
    k8s: Inner | None = None
    efsID: str | None = None  # noqa: N815 - such options exist
    _private: int = 1


class TestFromCfg:
    @pytest.mark.parametrize(
        ("cfg", "attribute", "value"),
        [
            ({}, "num_retries", 3),
            ({"num_retries": 5}, "num_retries", 5),
            ({"numRetries": 5}, "num_retries", 5),
            ({"num_retries": 5, "numRetries": 5}, "num_retries", 5),
            ({"tags": ["a"]}, "tags", ["a"]),
            ({"otherName": "x"}, "renamed", "x"),
            ({"renamed": "x"}, "renamed", "x"),
            ({"efsID": "x"}, "efsID", "x"),
            ({"efs_id": "x"}, "efsID", "x"),
            ({"labels": None}, "labels", None),
            ({}, "k8s", None),
            ({"k8s.context": "c"}, "k8s", Inner("c")),
            ({"k8s.context": "c", "k8s.name_space": "n"}, "k8s", Inner("c", "n")),
            ({"k8s.context": "c", "k8s.nameSpace": "n"}, "k8s", Inner("c", "n")),
            ({"_private": 2}, "_private", 1),
        ],
    )
    def test_values(self, cfg: dict[str, CfgVal], attribute: str, value: object) -> None:
        assert getattr(Opts.from_cfg({"cluster_name": "c", **cfg}), attribute) == value

    def test_a_missing_option(self) -> None:
        with pytest.raises(TypeError, match="cluster_name"):
            Opts.from_cfg({})

    def test_a_missing_option_of_a_group(self) -> None:
        with pytest.raises(TypeError, match="context"):
            Opts.from_cfg({"cluster_name": "c", "k8s.name_space": "n"})

    def test_a_group_that_is_required(self) -> None:
        @dataclass
        class Needs(StructuredOpts):
            inner: Inner

        with pytest.raises(TypeError, match="context"):
            Needs.from_cfg({})
        assert Needs.from_cfg({"inner.context": "c"}).inner == Inner("c")

    def test_two_spellings_that_differ(self) -> None:
        with pytest.raises(InvalidRunConfigException, match="two spellings with different values"):
            Opts.from_cfg({"cluster_name": "a", "clusterName": "b"})

    def test_another_instance_is_a_cfg_too(self) -> None:
        one = Opts.from_cfg({"cluster_name": "c", "k8s.context": "x", "unknown": 1})
        assert Opts.from_cfg(one) == one
        assert Opts.from_cfg(one)["unknown"] == 1

    def test_defaults_are_not_shared(self) -> None:
        Opts("a").tags.append("x")
        assert Opts("b").tags == []


class TestAsRunopts:
    def test_types_defaults_and_help(self) -> None:
        found = {
            key: (opt.opt_type, opt.default, opt.is_required, opt.help)
            for key, opt in Opts.as_runopts()
        }
        assert found == {
            "cluster_name": (str, None, True, "Name of the cluster\nto submit to."),
            "num_retries": (int, 3, False, "Number of retry attempts."),
            "tags": (list[str], None, False, "tags"),
            "labels": (dict[str, str], None, False, "labels"),
            "otherName": (str, "r", False, "Goes by another name."),
            "k8s.context": (str, None, False, "Which cluster."),  # in an optional group
            "k8s.name_space": (str, "default", False, "Where in it."),
            "efsID": (str, None, False, "efsID"),
        }

    def test_docstrings(self) -> None:
        assert Opts.get_docstrings() == {
            "cluster_name": "Name of the cluster\nto submit to.",
            "num_retries": "Number of retry attempts.",
            "renamed": "Goes by another name.",
            "k8s.context": "Which cluster.",
            "k8s.name_space": "Where in it.",
        }

    def test_a_subclass_inherits(self) -> None:
        @dataclass
        class Sub(Opts):
            more: bool = False
            """What is more."""
            num_retries: int = 5

        opts = Sub.as_runopts()
        assert [key for key, _ in opts][-1] == "more"
        retries, more = opts.get("num_retries"), opts.get("more")
        assert retries is not None
        assert more is not None
        assert (retries.default, retries.help) == (5, "Number of retry attempts.")
        assert (more.default, more.help) == (False, "What is more.")

    def test_a_class_without_source(self) -> None:
        names: dict[str, Any] = {}
        exec(  # noqa: S102 - code without a file
            "from dataclasses import dataclass\n"
            "from torchx_specs import StructuredOpts\n"
            "@dataclass\n"
            "class NoSource(StructuredOpts):\n"
            "    a: int = 1\n"
            "    '''not found'''\n",
            names,
        )
        found = names["NoSource"].as_runopts().get("a")
        assert found.help == "a"

    def test_resolving_and_reading_go_together(self) -> None:
        cfg = Opts.as_runopts().cfg_from_str("clusterName=c,tags=a,b;num_retries=5,k8s.context=x")
        opts = Opts.from_cfg(Opts.as_runopts().resolve(cfg))
        assert (opts.cluster_name, opts.tags, opts.num_retries) == ("c", ["a", "b"], 5)
        assert opts.k8s == Inner("x")

    def test_a_group_that_is_not_given_is_not_required(self) -> None:
        resolved = Opts.as_runopts().resolve({"cluster_name": "c"})
        assert Opts.from_cfg(resolved).k8s is None

    def test_a_required_group_s_options_are_required(self) -> None:
        @dataclass
        class Needs(StructuredOpts):
            inner: Inner

        required = {key: opt.is_required for key, opt in Needs.as_runopts()}
        assert required == {"inner.context": True, "inner.name_space": False}

    def test_default_of_a_list_that_was_not_given(self) -> None:
        resolved = Opts.as_runopts().resolve({"cluster_name": "c", "k8s.context": "x"})
        assert Opts.from_cfg(resolved).tags == []


class TestMapping:
    opts = Opts.from_cfg({"cluster_name": "c", "k8s.context": "x", "zz": 1})

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("cluster_name", "c"),
            ("clusterName", "c"),
            ("otherName", "r"),
            ("renamed", "r"),
            ("k8s.context", "x"),
            ("k8s.nameSpace", "default"),
            ("zz", 1),
        ],
    )
    def test_get(self, key: str, value: object) -> None:
        assert self.opts[key] == value
        assert self.opts.get(key) == value
        assert key in self.opts

    @pytest.mark.parametrize("key", ["nope", "_private", "from_cfg", "k8s.nope", "nope.x"])
    def test_other_keys(self, key: str) -> None:
        with pytest.raises(KeyError):
            self.opts[key]
        assert key not in self.opts
        assert self.opts.get(key, "default") == "default"

    def test_iteration(self) -> None:
        names = ["cluster_name", "num_retries", "tags", "labels", "otherName"]
        names += ["k8s.context", "k8s.name_space", "efsID", "zz"]
        assert list(self.opts) == names
        assert len(self.opts) == len(names)
        assert "k8s" not in dict(Opts("c"))

    def test_union(self) -> None:
        assert (Inner("c") | {"context": "d", "x": 1}) == {
            "context": "d",
            "name_space": "default",
            "x": 1,
        }
        assert ({"context": "d"} | Inner("c"))["context"] == "c"
        assert isinstance(Inner("c") | {}, dict)

    def test_equality_is_that_of_the_dataclass(self) -> None:
        assert Inner("c") == Inner("c", "default")
        assert Inner("c") != Inner("d")


@pytest.mark.parametrize(
    ("tp", "expected"),
    [
        (Opts, True),
        (StructuredOpts, False),
        (dict, False),
        (Mapping[str, int], False),
        (3, False),
    ],
)
def test_what_is_an_options_class(tp: object, expected: bool) -> None:
    assert is_structured_opts(tp) is expected


@dataclass
class Labels(StructuredOpts):
    labels: dict[str, str] = field(default_factory=dict)


@dataclass
class Flat(StructuredOpts):
    queue: str
    mail_user: Optional[str] = None


class TestOneMapping:
    def test_sets_the_options(self) -> None:
        assert Flat({"queue": "q", "mail-user": "u"}) == Flat(queue="q", mail_user="u")  # type: ignore[arg-type]
        assert Flat({"queue": "q"}, mail_user="u") == Flat("q", "u")  # type: ignore[arg-type]

    def test_keeps_an_option_of_the_workspace(self) -> None:
        assert Flat({"queue": "q", "image_repo": "r"})["image_repo"] == "r"  # type: ignore[arg-type]

    def test_an_unknown_key_is_named(self) -> None:
        with pytest.raises(InvalidRunConfigException, match="Unknown run option `queu`"):
            Flat({"queu": "q"})  # type: ignore[arg-type]

    def test_is_the_value_of_a_first_option_that_is_a_dict(self) -> None:
        assert Labels({"labels": "x"}).labels == {"labels": "x"}
