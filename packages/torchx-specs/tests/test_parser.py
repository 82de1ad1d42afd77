"""Tests of the parser of the arguments after a component's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Dict, List, Optional

import pytest
from hypothesis import given as given_any
from hypothesis import strategies as st

from torchx_specs.components.materialize import component_args_from_str
from torchx_specs.components.parser import ComponentHelpRequested
from torchx_specs.errors import ComponentArgumentError, ComponentTypeError
from torchx_specs.model.app import AppDef


def values(fn: Callable[..., Any], *words: str) -> dict[str, Any]:
    args = component_args_from_str(fn, list(words))
    return {
        **args.positional_args,
        **args.kwargs,
        **({"*": args.var_args} if args.var_args else {}),
    }


def given(fn: Callable[..., Any], *words: str) -> dict[str, Any]:
    """Return the values that differ from the defaults."""
    defaults = values(fn)
    return {
        name: value for name, value in values(fn, *words).items() if defaults.get(name) != value
    }


def error(fn: Callable[..., Any], *words: str) -> str:
    with pytest.raises(ComponentArgumentError) as raised:
        component_args_from_str(fn, list(words))
    assert isinstance(raised.value, ValueError)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def comp(
    name: str = "",
    num_replicas: int = 1,
    ratio: float = 0.5,
    debug: bool = False,
    cache: Optional[bool] = None,
    env: Optional[Dict[str, str]] = None,
    mounts: Optional[List[str]] = None,
    j: str = "1x2",
    h: Optional[str] = None,
    shape: tuple[int, int] = (1, 1),
) -> AppDef:
    return AppDef(name)


def with_varargs(*args: str, name: str = "", debug: bool = False, n: int = 0) -> AppDef:
    return AppDef(name)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--name x", {"name": "x"}),
        ("--name=x", {"name": "x"}),
        ("--name=a=b", {"name": "a=b"}),
        ("--name=--x", {"name": "--x"}),
        ("--name=-", {"name": "-"}),
        ("--name -", {"name": "-"}),
        ("--num_replicas 3", {"num_replicas": 3}),
        ("--num-replicas 3", {"num_replicas": 3}),
        ("--num-replicas=3", {"num_replicas": 3}),
        ("--num_replicas -3", {"num_replicas": -3}),
        ("--ratio -.5", {"ratio": -0.5}),
        ("--ratio -1e-3", {"ratio": -0.001}),
        ("--ratio -inf", {"ratio": float("-inf")}),
        ("--shape -1,-2", {"shape": (-1, -2)}),
        ("--name -1x", {"name": "-1x"}),
        ("--na x", {"name": "x"}),
        ("--num 3", {"num_replicas": 3}),
        ("--num-r=3", {"num_replicas": 3}),
        ("--m a", {"mounts": ["a"]}),
        ("-j 2x2", {"j": "2x2"}),
        ("-j 1:4x8", {"j": "1:4x8"}),
        ("-j2x2", {"j": "2x2"}),
        ("-j=2x2", {"j": "2x2"}),
        ("--j 2x2", {"j": "2x2"}),
        ("-h gpu.small", {"h": "gpu.small"}),
        ("--debug", {"debug": True}),
        ("--debug --name x", {"debug": True, "name": "x"}),
        ("--debug True", {"debug": True}),
        ("--debug=yes", {"debug": True}),
        ("--debug false", {}),
        ("--no-debug", {}),
        ("--no_debug", {}),
        ("--no-deb", {}),
        ("--no-cache", {"cache": False}),
        ("--cache", {"cache": True}),
        ("--cache=", {}),
        ("--n", None),
        ("--env A=1,B=x=y", {"env": {"A": "1", "B": "x=y"}}),
        ("--env A=1,2;B=3", {"env": {"A": "1,2", "B": "3"}}),
        ("--env FOO=a,b,BAR=c", {"env": {"FOO": "a,b", "BAR": "c"}}),
        ("--env a=,b=1", {"env": {"a": "", "b": "1"}}),
        ("--env=A=1", {"env": {"A": "1"}}),
        ("--env A=1 --env B=2", {"env": {"A": "1", "B": "2"}}),
        ("--env A=1 --name x --env=A=2,B=2", {"env": {"A": "2", "B": "2"}, "name": "x"}),
        ("--mounts a,b --mounts c", {"mounts": ["a", "b", "c"]}),
        ("--mounts= --mounts c", {"mounts": ["c"]}),
        (
            "--mounts type=bind,src=/a,dst=/b,readonly",
            {"mounts": ["type=bind", "src=/a", "dst=/b", "readonly"]},
        ),
        ("--name x --name x", {"name": "x"}),
        ("--debug --debug", {"debug": True}),
        ("--name x --", {"name": "x"}),
    ],
)
def test_options(words: str, expected: dict[str, Any] | None) -> None:
    if expected is None:
        error(comp, *words.split())
    else:
        assert given(comp, *words.split()) == expected


def test_values_are_passed_unchanged() -> None:
    for value in ("", " ", "a b", "$HOME", "`x`", "é日\n'\"", "\\"):
        assert values(comp, "--name", value)["name"] == value
        assert values(comp, f"--name={value}")["name"] == value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--nmae x", "comp: unknown option --nmae; did you mean '--name'?"),
        ("--zzz x", "comp: unknown option --zzz"),
        ("--num-replica5 3", "unknown option --num-replica5; did you mean '--num_replicas'?"),
        ("-x", "comp: unknown option -x"),
        ("-name x", "comp: unknown option -name; did you mean '--name'?"),
        ("--n x", "comp: --n could be any of --name, --num_replicas"),
        ("--hex 1", "comp: unknown option --hex"),
        ("--=x", "'--' is not an option"),
        ("--name", "comp: --name needs a value"),
        ("--name --", "comp: --name needs a value"),
        (
            "--name --debug",
            "comp: --name needs a value; if '--debug' is the value, write --name=--debug",
        ),
        ("-j -x", "comp: -j needs a value; if '-x' is the value, write -j=-x"),
        ("--num_replicas two", "comp: --num_replicas: 'two' is not an int"),
        ("--num-replicas=two", "comp: --num-replicas: 'two' is not an int"),
        ("-jx --num x", "comp: --num: 'x' is not an int"),
        ("--ratio x", "comp: --ratio: 'x' is not a float"),
        ("--debug maybe", "comp: --debug: 'maybe' is not a bool: use true, false"),
        ("--debug=maybe", "comp: --debug: 'maybe' is not a bool"),
        ("--no-debug=true", "comp: --no-debug=true: a negated flag takes no value"),
        ("--env A", "comp: --env: 'A' is not of the form key=value"),
        ("--shape 1", "comp: --shape: '1' has 1 items, expected 2"),
        ("--name a --name b", "comp: --name: given twice: 'a' and 'b'"),
        ("-j 1 --j 2", "comp: --j: given twice: '1' (by -j) and '2'"),
        ("--debug --no-debug", "comp: --no-debug: given twice: True (by --debug) and False"),
        ("--shape 1,1 --shape 2,2", "comp: --shape: given twice: (1, 1) and (2, 2)"),
        ("hello", "comp takes options only, not the argument 'hello'"),
        ("nmae", "comp takes options only, not the argument 'nmae'"),
        ("--name x y", "comp takes options only, not the argument 'y'"),
        ("-- word", "comp takes options only, not the argument 'word'"),
        ("-- --nmae x", "comp: unknown option --nmae; did you mean '--name'?"),
    ],
)
def test_wrong_arguments_are_refused(words: str, message: str) -> None:
    assert message in error(comp, *words.split())


def test_dashes_before_options_are_ignored_without_varargs() -> None:
    assert values(comp, "--", "--name", "test app")["name"] == "test app"
    assert values(comp, "-jx", "--", "--name=y")["name"] == "y"


def test_all_wrong_values_are_named() -> None:
    def needy(a: int, b: float, c: str, d: str) -> AppDef:
        return AppDef("x")

    text = error(needy, "--a", "x", "--b", "y")
    assert text == (
        "needy: --a: 'x' is not an int; --b: 'y' is not a float;"
        " missing required arguments: --c, --d"
    )


def test_the_parameter_at_fault_is_an_attribute() -> None:
    with pytest.raises(ComponentArgumentError) as raised:
        component_args_from_str(comp, ["--ratio", "x"])
    assert raised.value.parameter == "ratio"
    assert raised.value.exit_code == 2


class TestVarargs:
    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            ("", {}),
            ("--", {}),
            ("a", {"*": ["a"]}),
            ("a b", {"*": ["a", "b"]}),
            ("-- a", {"*": ["a"]}),
            ("-- -- a", {"*": ["--", "a"]}),
            ("a -- b", {"*": ["a", "--", "b"]}),
            ("--name x a --name y", {"name": "x", "*": ["a", "--name", "y"]}),
            ("--name x -- --name y --name z", {"name": "x", "*": ["--name", "y", "--name", "z"]}),
            ("echo -n a -n b", {"*": ["echo", "-n", "a", "-n", "b"]}),
            ("-- echo -n a -n b", {"*": ["echo", "-n", "a", "-n", "b"]}),
            ("-- --help", {"*": ["--help"]}),
            ("a --help", {"*": ["a", "--help"]}),
            ("-n -1 -2", {"n": -1, "*": ["-2"]}),
            ("-", {"*": ["-"]}),
            ("--debug -- x", {"debug": True, "*": ["x"]}),
            ("--debug true x", {"debug": True, "*": ["x"]}),
            ("--name x -- lr=1 a=b,c=d ''", {"name": "x", "*": ["lr=1", "a=b,c=d", "''"]}),
        ],
    )
    def test_varargs_begin_at_the_first_positional_or_after_dashes(
        self, words: str, expected: dict[str, Any]
    ) -> None:
        assert given(with_varargs, *words.split()) == expected

    def test_varargs_are_passed_unchanged(self) -> None:
        words = ["", " ", "a b", "$X", "--", "-x", "é\n", "'\"'"]
        assert component_args_from_str(with_varargs, ["--", *words]).var_args == words
        assert component_args_from_str(with_varargs, words).var_args == words

    def test_unknown_option_before_varargs_is_an_error(self) -> None:
        text = error(with_varargs, "--nmae", "x", "a")
        assert text.endswith("did you mean '--name'?; arguments of the program go after '--'")

    def test_argument_after_a_flag_is_its_value(self) -> None:
        message = error(with_varargs, "--debug", "echo", "hi")
        assert "--debug: 'echo' is not a bool" in message
        assert "(write '--' before arguments for *args)" in message

    def test_varargs_are_converted(self) -> None:
        def numbers(*n: int) -> AppDef:
            return AppDef("x")

        assert component_args_from_str(numbers, ["1", "-2"]).var_args == [1, -2]
        assert error(numbers, "1", "x") == "numbers: *n: 'x' is not an int"


class TestAliases:
    def aliased(
        self: Annotated[int, "-s", "not an option"] = 0,
        config_name: Annotated[str, "-cn", "--conf"] = "",
        debug: Annotated[bool, "-d", "--trace"] = False,
        host: Annotated[Optional[str], "-h"] = None,
    ) -> AppDef:
        return AppDef("x")

    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            ("-s 1", {"self": 1}),
            ("--self 1", {"self": 1}),
            ("-cn a", {"config_name": "a"}),
            ("-cn=a", {"config_name": "a"}),
            ("--conf a", {"config_name": "a"}),
            ("--con a", {"config_name": "a"}),
            ("--config-name a", {"config_name": "a"}),
            ("-d", {"debug": True}),
            ("--trace", {"debug": True}),
            ("-d --no-trace", None),
            ("-d false", {}),
            ("-h x", {"host": "x"}),
        ],
    )
    def test_short_and_long(self, words: str, expected: dict[str, Any] | None) -> None:
        if expected is None:
            assert "given twice" in error(TestAliases.aliased, *words.split())
        else:
            assert given(TestAliases.aliased, *words.split()) == expected

    def test_two_parameters_with_one_option_are_refused(self) -> None:
        def clash(m: str = "", module: Annotated[str, "-m"] = "") -> AppDef:
            return AppDef("x")

        with pytest.raises(
            ComponentTypeError, match="clash: parameters 'm' and 'module' both have the option -m"
        ):
            component_args_from_str(clash, [])

    def test_a_parameter_called_no_x_wins_over_the_negation_of_x(self) -> None:
        def tricky(cache: bool = True, no_cache: str = "") -> AppDef:
            return AppDef("x")

        assert given(tricky, "--no-cache", "now") == {"no_cache": "now"}
        assert given(tricky, "--cache=no") == {"cache": False}


class TestHelp:
    @pytest.mark.parametrize(
        "words", ["--help", "--name x --help", "--he", "--help hello", "--help=1"]
    )
    def test_help_after_varargs_begin_is_an_argument(self, words: str) -> None:
        with pytest.raises(ComponentHelpRequested) as asked:
            component_args_from_str(with_varargs, words.split())
        assert asked.value.exit_code == 0
        assert str(asked.value).startswith("usage: with_varargs")
        assert asked.value.component is with_varargs

    def test_help_needs_no_required_arguments(self) -> None:
        def needy(a: int) -> AppDef:
            return AppDef("x")

        with pytest.raises(ComponentHelpRequested):
            component_args_from_str(needy, ["--help"])

    def test_parameter_named_help_wins(self) -> None:
        def helpful(help: str = "") -> AppDef:
            return AppDef("x")

        assert values(helpful, "--help", "me") == {"help": "me"}

    def test_ambiguous_abbreviation_is_an_error(self) -> None:
        def hosts(host: str = "") -> AppDef:
            return AppDef("x")

        assert "--h could be any of --help, --host" in error(hosts, "--h", "x")

    def test_h_is_not_help(self) -> None:
        assert "unknown option -h; did you mean '--help'?" in error(with_varargs, "-h")


def test_every_kind_of_parameter_is_bound() -> None:
    def kinds(a: int, /, b: int, *rest: str, c: int, d: int = 4) -> AppDef:
        return AppDef("x")

    args = component_args_from_str(kinds, ["--c", "3", "--a", "1", "--b", "2", "x"])
    assert args.positional_args == {"a": 1, "b": 2}
    assert list(args.positional_args) == ["a", "b"]
    assert args.var_args == ["x"]
    assert args.kwargs == {"c": 3, "d": 4}
    assert args == (args.positional_args, args.var_args, args.kwargs)


def test_messages_have_no_line_breaks() -> None:
    assert error(comp, "--num_replicas", "a\nb") == r"comp: --num_replicas: 'a\nb' is not an int"


WORDS = st.sampled_from(
    [
        *["--", "-", "", "--name", "--name=", "--n", "-j", "-j1", "--debug", "--no-debug", "--env"],
        *["A=1", "--help", "true", "x", "1", "-1", "--num_replicas", "--shape", "1,2", "--mounts"],
        *["=", "--=", "-cn", "-s", "--trace=no"],
    ]
) | st.text(max_size=4)


@given_any(st.lists(WORDS, max_size=6), st.sampled_from([comp, with_varargs, TestAliases.aliased]))
def test_any_arguments_are_parsed_or_refused_in_one_line(
    words: list[str], component: Callable[..., Any]
) -> None:
    try:
        args = component_args_from_str(component, words)
    except ComponentHelpRequested:
        return
    except ComponentArgumentError as refused:
        message = str(refused)
    else:
        assert words[len(words) - len(args.var_args) :] == args.var_args
        return
    assert message.startswith(component.__name__)
    assert len(message.splitlines()) == 1
