"""Tests of scheduler options and their notation."""

from __future__ import annotations

import logging
from typing import Any, Dict, List, Optional, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_specs import InvalidRunConfigException, runopt, runopts


@pytest.fixture
def opts() -> runopts:
    opts = runopts()
    opts.add("S", type_=str, help="a string")
    opts.add("T", type_=str, help="another string")
    opts.add("I", type_=int, help="an int", default=7)
    opts.add("F", type_=float, help="a float")
    opts.add("B", type_=bool, help="a bool", default=False)
    opts.add("L", type_=List[str], help="a list")
    opts.add("M", type_=List[str], help="another list")
    opts.add("D", type_=Dict[str, str], help="a dict")
    opts.add("job_queue", type_=str, help="snake")
    opts.add("efsID", type_=str, help="camel")
    return opts


class TestCfgFromStr:
    @pytest.mark.parametrize(
        ("text", "cfg"),
        [
            ("", {}),
            ("   ", {}),
            ("S=v1", {"S": "v1"}),
            ("S=v1,T=v2", {"S": "v1", "T": "v2"}),
            ("S=v1;T=v2", {"S": "v1", "T": "v2"}),
            (" S = v1 , T = v2 ", {"S": "v1", "T": "v2"}),
            ("I=3,F=1.5,B=True", {"I": 3, "F": 1.5, "B": True}),
            ("F=2", {"F": 2.0}),
            ("I=-3", {"I": -3}),
            # The last delimiter before the next key ends a list.
            ("L=v1", {"L": ["v1"]}),
            ("L=v1,v2", {"L": ["v1", "v2"]}),
            ("L=v1;v2", {"L": ["v1", "v2"]}),
            ("L=v1,v2,S=v3", {"L": ["v1", "v2"], "S": "v3"}),
            ("L=v1;v2,S=v3", {"L": ["v1", "v2"], "S": "v3"}),
            ("L=v1;v2;S=v3", {"L": ["v1", "v2"], "S": "v3"}),
            ("L=v1,v2;S=v3", {"L": ["v1", "v2"], "S": "v3"}),
            ("S=v3,L=v1,v2", {"L": ["v1", "v2"], "S": "v3"}),
            ("L=a,b,M=c;d", {"L": ["a", "b"], "M": ["c", "d"]}),
            ("L=a,b,", {"L": ["a", "b"]}),
            # Strings may contain delimiters, too.
            ("S=a,b,T=c", {"S": "a,b", "T": "c"}),
            ("S=a;b", {"S": "a;b"}),
            # Colons separate the keys and values of dicts.
            ("D=a:1", {"D": {"a": "1"}}),
            ("D=a:1,b:2", {"D": {"a": "1", "b": "2"}}),
            ("D=a:1;b:2,S=x", {"D": {"a": "1", "b": "2"}, "S": "x"}),
            ("D=url:http://h:80", {"D": {"url": "http://h:80"}}),
            # A value may contain `=`.
            ("S=a=b", {"S": "a=b"}),
            ("S=--flag=1,T=x", {"S": "--flag=1", "T": "x"}),
            ("L=a=1", {"L": ["a=1"]}),
            # A text that is no identifier is no key.
            (
                "L=--mpi=pmix;--cpu-bind=cores,S=x",
                {"L": ["--mpi=pmix", "--cpu-bind=cores"], "S": "x"},
            ),
            ("L=a.b/c=1:NoExecute,d-e=2,S=x", {"L": ["a.b/c=1:NoExecute", "d-e=2"], "S": "x"}),
            ("L=nice=100;'begin=now'", {"L": ["nice=100", "begin=now"]}),
            # A quoted value may contain any characters.
            ("S='a,T=b',T=c", {"S": "a,T=b", "T": "c"}),
            ('S="a;b=c"', {"S": "a;b=c"}),
            ("S=it's", {"S": "it's"}),
            ("S='a' b", {"S": "'a' b"}),
            ("L=''", {"L": []}),
            ("S=''", {"S": ""}),
            # A value may be empty.
            ("S=,T=x", {"S": "", "T": "x"}),
            ("S=", {"S": ""}),
            # An option may be given in camelCase or snake_case.
            ("jobQueue=q", {"job_queue": "q"}),
            ("efs_id=x", {"efsID": "x"}),
            # An option may be given twice with the same value.
            ("S=a,S=a", {"S": "a"}),
            ("job_queue=q,jobQueue=q", {"job_queue": "q"}),
        ],
    )
    def test_values(self, opts: runopts, text: str, cfg: dict[str, Any]) -> None:
        assert opts.cfg_from_str(text) == cfg

    @pytest.mark.parametrize("true", ["True", "true", "TRUE", "1", "yes", "on"])
    def test_true(self, opts: runopts, true: str) -> None:
        assert opts.cfg_from_str(f"B={true}") == {"B": True}

    @pytest.mark.parametrize("false", ["False", "false", "FALSE", "0", "no", "off"])
    def test_false(self, opts: runopts, false: str) -> None:
        assert opts.cfg_from_str(f"B={false}") == {"B": False}

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("S", "'S' is not of the form key=value"),
            ("=x", "'=\\*\\*\\*' has a '=' without a key"),
            ("I=x", "Run option: I: `x` is not a valid int"),
            ("I=1.5", "`1.5` is not a valid int"),
            ("I=", "`` is not a valid int"),
            ("F=x", "Run option: F: `x` is not a valid float"),
            ("B=maybe", "'maybe' is not a bool"),
            ("B=", "'' is not a bool"),
            ("D=a", "Run option: D: 'a' is not of the form key:value,key2:value2"),
            ("S=a,S=b", "S is given twice"),
            ("job_queue=q,jobQueue=r", "job_queue is given twice, as 'q' and as 'r'"),
        ],
    )
    def test_errors(self, opts: runopts, text: str, said: str) -> None:
        with pytest.raises(InvalidRunConfigException, match=said.replace("(", r"\(")) as raised:
            opts.cfg_from_str(text)
        assert isinstance(raised.value, ValueError)

    def test_unknown_options_are_dropped_with_a_warning(
        self, opts: runopts, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            assert opts.cfg_from_str("UNKNOWN=VALUE") == {}
            assert opts.cfg_from_str("jobQueu=q,S=x") == {"S": "x"}
        assert "unknown run option `UNKNOWN` dropped" in caplog.text
        assert "did you mean 'job_queue'?" in caplog.text

    def test_unknown_options_are_refused_if_not_ignored(self, opts: runopts) -> None:
        with pytest.raises(InvalidRunConfigException, match="Unknown run option `jobQueu`"):
            opts.cfg_from_str("jobQueu=q", ignore_unknown=False)

    def test_all_unknown_options_are_in_one_error(self, opts: runopts) -> None:
        with pytest.raises(InvalidRunConfigException) as error:
            opts.cfg_from_str("job_queu=a,other=b,third=c", ignore_unknown=False)
        assert str(error.value).startswith(
            "Unknown run option `job_queu`. did you mean 'job_queue'?"
            " Also unknown: `other`, `third`."
        )

    def test_unknown_option_after_a_value_names_the_quotes(self, opts: runopts) -> None:
        with pytest.raises(InvalidRunConfigException, match="quote it: L='…'"):
            opts.cfg_from_str("L=nice=100;begin=now", ignore_unknown=False)

    @given(
        st.dictionaries(
            st.sampled_from(["S", "T", "job_queue"]),
            st.text(st.characters(codec="utf-8", exclude_characters="'\"=,;"), min_size=1),
        )
    )
    def test_plain_values_arrive(self, given_: dict[str, str]) -> None:
        opts = runopts()
        for name in ("S", "T", "job_queue"):
            opts.add(name, type_=str, help="")
        text = ",".join(f"{k}={v}" for k, v in given_.items())
        assert opts.cfg_from_str(text) == {k: v.strip() for k, v in given_.items()}


class TestCfgFromJson:
    def test_values(self, opts: runopts) -> None:
        text = '{"S": "x", "I": 3, "B": true, "L": ["a", 1], "D": {"a": 1}, "jobQueue": null}'
        assert opts.cfg_from_json_repr(text) == {
            "S": "x",
            "I": 3,
            "B": True,
            "L": ["a", "1"],
            "D": {"a": "1"},
            "job_queue": None,
        }

    def test_unknown(self, opts: runopts) -> None:
        with pytest.raises(InvalidRunConfigException, match=r"`X`.*Valid options are: B, D, F, I"):
            opts.cfg_from_json_repr('{"X": 1}')
        assert opts.cfg_from_json_repr('{"X": 1, "S": "a"}', ignore_unknown=True) == {"S": "a"}

    @pytest.mark.parametrize("text", ["", "{", "[1]", "3", "nan"])
    def test_not_an_object(self, opts: runopts, text: str) -> None:
        with pytest.raises(InvalidRunConfigException, match="JSON"):
            opts.cfg_from_json_repr(text)


class TestResolve:
    def test_defaults_are_filled_in(self, opts: runopts) -> None:
        assert opts.resolve({"S": "x"}) == {
            "S": "x",
            "T": None,
            "I": 7,
            "F": None,
            "B": False,
            "L": None,
            "M": None,
            "D": None,
            "job_queue": None,
            "efsID": None,
        }

    def test_given_cfg_is_not_changed(self, opts: runopts) -> None:
        cfg = {"jobQueue": "q"}
        resolved = opts.resolve(cfg)
        assert cfg == {"jobQueue": "q"}
        assert resolved["job_queue"] == "q"
        assert "jobQueue" not in resolved

    def test_none_stays_none(self, opts: runopts) -> None:
        assert opts.resolve({"I": None})["I"] is None

    @pytest.mark.parametrize(
        ("cfg", "key", "said"),
        [
            ({"S": 1}, "S", "Run option: S, must be of type: str, but was: 1 (int)"),
            ({"I": "1"}, "I", "must be of type: int, but was: 1 (str)"),
            ({"B": "True"}, "B", "must be of type: bool"),
            ({"L": "a"}, "L", "must be of type: list[str], but was: a (str)"),
            ({"L": ("a",)}, "L", "must be of type: list"),
            ({"L": [1]}, "L", "must be of type: list"),
            ({"D": {"a": 1}}, "D", "must be of type: dict"),
            ({"X": 1}, "X", "Unknown run option `X`"),
            ({"job_queues": 1}, "job_queues", "did you mean 'job_queue'?"),
            ({"job_queue": "a", "jobQueue": "b"}, "job_queue", "given twice, as 'a' and as 'b'"),
        ],
    )
    def test_errors(self, opts: runopts, cfg: dict[str, Any], key: str, said: str) -> None:
        with pytest.raises(InvalidRunConfigException) as raised:
            opts.resolve(cfg)
        assert said in str(raised.value)
        assert f". Given: {{'{key}'" in str(raised.value)
        assert raised.value.cfg_key == key

    def test_int_is_accepted_for_float(self, opts: runopts) -> None:
        assert opts.resolve({"F": 1})["F"] == 1

    def test_unknown_options_can_be_kept(self, opts: runopts) -> None:
        assert opts.resolve({"X": 1}, ignore_unknown=True)["X"] == 1

    @pytest.mark.parametrize("cfg", [{}, {"need": None}])
    def test_required(self, cfg: dict[str, Any]) -> None:
        opts = runopts()
        opts.add("need", type_=str, help="", required=True)
        with pytest.raises(InvalidRunConfigException, match="Required run option: need, must be"):
            opts.resolve(cfg)
        assert opts.resolve({"need": "x"}) == {"need": "x"}

    def test_errors_without_options_or_values(self) -> None:
        with pytest.raises(InvalidRunConfigException, match="options are: \\(none declared\\)"):
            runopts().resolve({"x": 1})
        opts = runopts()
        opts.add("need", type_=str, help="", required=True)
        with pytest.raises(InvalidRunConfigException, match="Given: <EMPTY>"):
            opts.resolve({})


class TestAdd:
    def test_a_required_option_has_no_default(self) -> None:
        with pytest.raises(ValueError, match="Required option: a must not specify default"):
            runopts().add("a", type_=int, help="", default=10, required=True)

    def test_a_default_of_another_type(self) -> None:
        with pytest.raises(TypeError, match="Option: a, must be of type: <class 'str'>"):
            runopts().add("a", type_=str, help="", default=10)

    def test_get_and_canonical_key(self, opts: runopts) -> None:
        assert opts.get("jobQueue") is opts.get("job_queue")
        assert opts.canonical_key("jobQueue") == "job_queue"
        assert opts.canonical_key("efs_id") == "efsID"
        assert (opts.get("nope"), opts.canonical_key("nope")) == (None, None)

    def test_update(self, opts: runopts) -> None:
        other = runopts()
        other.add("S", type_=int, help="wins", default=1)
        opts.update(other)
        found = opts.get("S")
        assert found is not None
        assert (found.opt_type, found.help) == (int, "wins")
        assert len(opts) == 10

    def test_help_is_made_when_it_is_read(self) -> None:
        calls: list[int] = []
        opts = runopts()
        opts.add("a", type_=str, help=lambda: calls.append(1) or "late")
        assert calls == []
        found = opts.get("a")
        assert found is not None
        assert (found.help, found.help, calls) == ("late", "late", [1])


@pytest.mark.parametrize(
    ("value", "tp", "expected"),
    [
        ("a", str, True),
        (1, str, False),
        (True, int, True),
        (1, bool, False),
        (1, float, True),
        (True, float, False),
        (None, str, False),
        (None, Optional[str], True),
        ("a", Optional[str], True),
        (1, Union[int, str], True),
        (["a"], List[str], True),
        (["a"], list[str], True),
        ([], List[str], True),
        ([1], List[str], False),
        (("a",), List[str], False),
        ({"a": "b"}, Dict[str, str], True),
        ({"a": 1}, dict[str, str], False),
        ({1: "a"}, dict[str, str], False),
    ],
)
def test_is_type(value: Any, tp: Any, expected: bool) -> None:
    assert runopts.is_type(value, tp) is expected


@pytest.mark.parametrize(
    ("tp", "text", "expected"),
    [
        (str, "foo", "foo"),
        (str, " foo ", " foo "),
        (bool, "True", True),
        (bool, "False", False),
        (int, "1", 1),
        (float, "1.1", 1.1),
        (List[str], "a,b,c", ["a", "b", "c"]),
        (list[str], "a;b;c", ["a", "b", "c"]),
        (List[str], "", []),
        (Dict[str, str], "a:1,b:2", {"a": "1", "b": "2"}),
        (dict[str, str], "a:1;b:2", {"a": "1", "b": "2"}),
        (Dict[str, str], "", {}),
    ],
)
def test_cast_to_type(tp: Any, text: str, expected: Any) -> None:
    opt = runopt(default=None, opt_type=tp, is_required=False, help="")
    assert opt.cast_to_type(text) == expected


def test_options_compare() -> None:
    one = runopt(1, int, False, "h")
    assert one == runopt(1, int, False, lambda: "h")
    assert one != runopt(2, int, False, "h")
    assert one != "h"
    assert repr(one) == "runopt(default=1, opt_type=<class 'int'>, is_required=False, help='h')"


def test_repr_shows_usage_and_options() -> None:
    opts = runopts()
    opts.add("cluster_id", type_=int, help="cluster to submit to", required=True)
    opts.add("priority", type_=float, default=0.5, help="job priority\nsecond line")
    opts.add("tags", type_=List[str], help="")
    assert repr(opts) == (
        "    usage:\n"
        "        cluster_id=CLUSTER_ID,[priority=PRIORITY],[tags=TAGS]\n"
        "\n"
        "    required arguments:\n"
        "        cluster_id=CLUSTER_ID (int)\n"
        "            cluster to submit to\n"
        "\n"
        "    optional arguments:\n"
        "        priority=PRIORITY (float, 0.5)\n"
        "            job priority\n"
        "            second line\n"
        "        tags=TAGS (list, None)\n"
        "            "
    )
    assert repr(runopts()) == "    usage:\n        "


def test_several_types_of_one_option_are_shown() -> None:
    opts = runopts()
    opts.add("tags", type_=Union[str, list, None], help="h")
    assert "tags=TAGS (str | list, None)" in repr(opts)
