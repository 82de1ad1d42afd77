"""Tests of calls of components: sources of values, kinds of components, results."""

from __future__ import annotations

import doctest
import enum
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, Union

import pytest

from torchx_specs.components import materialize
from torchx_specs.components.materialize import (
    ComponentArgs,
    component_args_from_str,
    component_error_location,
    materialize_appdef,
)
from torchx_specs.components.parser import ComponentHelpRequested
from torchx_specs.errors import ComponentArgumentError, ComponentError, ComponentTypeError
from torchx_specs.model.app import AppDef, Role

if TYPE_CHECKING:
    from somewhere_not_installed import Result


class Color(enum.Enum):
    RED = "r"
    BLUE = "b"


def received(**values: Any) -> AppDef:
    return AppDef("app", metadata=values)


def every_type(
    *words: str,
    s: str = "s",
    i: int = 1,
    f: float = 1.0,
    b: bool = False,
    oi: Optional[int] = None,
    pipe: int | None = None,
    turned: None | int = None,  # noqa: RUF036 - people write this
    union: Union[int, str] = 0,
    literal: Literal["x", "y"] = "x",
    color: Color = Color.RED,
    path: Path = Path("."),
    items: list[int] = [],  # noqa: B006 - a default like any other
    env: dict[str, str] | None = None,
    groups: dict[str, list[str]] | None = None,
    pair: tuple[int, str] = (0, ""),
    many: tuple[float, ...] = (),
    short: Annotated[int, "-x"] = 0,
    implicit: int = None,  # noqa: RUF013 - people write this
) -> AppDef:
    return received(
        words=words,
        s=s,
        i=i,
        f=f,
        b=b,
        oi=oi,
        pipe=pipe,
        turned=turned,
        union=union,
        literal=literal,
        color=color,
        path=path,
        items=items,
        env=env,
        groups=groups,
        pair=pair,
        many=many,
        short=short,
        implicit=implicit,
    )


NO_TYPE_OF_OURS = object()

TEXTS_AND_VALUES: dict[str, tuple[str, Any]] = {
    "s": ("a b", "a b"),
    "i": ("5", 5),
    "f": ("0.5", 0.5),
    "b": ("True", True),
    "oi": ("5", 5),
    "pipe": ("5", 5),
    "turned": ("5", 5),
    "union": ("5", 5),
    "literal": ("y", "y"),
    "color": ("BLUE", Color.BLUE),
    "path": ("a/b", Path("a/b")),
    "items": ("1,2", [1, 2]),
    "env": ("A=1,B=x=y", {"A": "1", "B": "x=y"}),
    "groups": ("a=1,2;b=3", {"a": ["1", "2"], "b": ["3"]}),
    "pair": ("1,a", (1, "a")),
    "many": ("1,2", (1.0, 2.0)),
    "short": ("5", 5),
    "implicit": ("5", 5),
}
VALUES = {name: value for name, (_, value) in TEXTS_AND_VALUES.items()}


def test_command_line_gives_every_type() -> None:
    words = [w for name, (text, _) in TEXTS_AND_VALUES.items() for w in (f"--{name}", text)]
    app = materialize_appdef(every_type, [*words, "--", "-n", "a", "-n", "b"])
    assert app.metadata == {**VALUES, "words": ("-n", "a", "-n", "b")}


def test_configuration_file_gives_every_type() -> None:
    texts = {name: text for name, (text, _) in TEXTS_AND_VALUES.items()}
    app = materialize_appdef(every_type, [], {**texts, "words": "a 'b c' \"d\""})
    assert app.metadata == {**VALUES, "words": ("a", "b c", "d")}


def test_typed_values_are_accepted_for_every_type() -> None:
    app = materialize_appdef(every_type, [], None, {**VALUES, "words": ["a", "b c"]})
    assert app.metadata == {**VALUES, "words": ("a", "b c")}


def test_text_among_typed_values_is_parsed() -> None:
    config = {name: text for name, (text, _) in TEXTS_AND_VALUES.items() if name != "union"}
    app = materialize_appdef(every_type, [], None, config)
    assert app.metadata == {**VALUES, "union": 0, "words": ()}


def test_text_in_a_union_with_str_is_text_when_typed_and_a_number_when_not() -> None:
    assert materialize_appdef(every_type, [], None, {"union": "5"}).metadata["union"] == "5"
    assert materialize_appdef(every_type, [], {"union": "5"}).metadata["union"] == 5


def test_signature_defaults_are_passed_unchanged() -> None:
    default = object()

    def odd(x: int = default, y: list[str] = ("a",)) -> AppDef:
        return received(x=x, y=y)

    assert materialize_appdef(odd, []).metadata == {"x": default, "y": ("a",)}


class TestPrecedence:
    @staticmethod
    def comp(*rest: str, a: str = "signature", l: Optional[list[str]] = None) -> AppDef:  # noqa: E741
        return received(a=a, l=l, rest=rest)

    @pytest.mark.parametrize(
        ("words", "config", "defaults", "expected"),
        [
            ([], None, None, "signature"),
            ([], None, {"a": "file"}, "file"),
            ([], {"a": "config"}, {"a": "file"}, "config"),
            (["--a", "word"], {"a": "config"}, {"a": "file"}, "word"),
            (["--a", ""], {"a": "config"}, {"a": "file"}, ""),
        ],
    )
    def test_command_line_wins_over_config_over_file_over_signature(
        self,
        words: list[str],
        config: dict[str, Any] | None,
        defaults: dict[str, str] | None,
        expected: str,
    ) -> None:
        app = materialize_appdef(self.comp, words, defaults, config)
        assert app.metadata["a"] == expected

    def test_sources_are_not_merged(self) -> None:
        app = materialize_appdef(self.comp, ["--l", "x"], {"l": "y"}, {"l": ["z"]})
        assert app.metadata["l"] == ["x"]

    @pytest.mark.parametrize(
        ("words", "config", "defaults", "expected"),
        [
            ([], None, {"rest": "a b"}, ("a", "b")),
            ([], {"rest": ["c d"]}, {"rest": "a b"}, ("c d",)),
            ([], {"rest": "c 'd e'"}, None, ("c", "d e")),
            ([], {"rest": None}, None, ()),
            (["x"], {"rest": ["c"]}, {"rest": "a b"}, ("x",)),
            (["--"], {"rest": ["c"]}, {"rest": "a b"}, ()),
        ],
    )
    def test_varargs_have_the_same_precedence(
        self,
        words: list[str],
        config: dict[str, Any] | None,
        defaults: dict[str, str] | None,
        expected: tuple[str, ...],
    ) -> None:
        app = materialize_appdef(self.comp, words, defaults, config)
        assert app.metadata["rest"] == expected

    def test_any_source_satisfies_a_required_parameter(self) -> None:
        def needy(a: int, b: int, c: int) -> AppDef:
            return received(a=a, b=b, c=c)

        app = materialize_appdef(needy, ["--a", "1"], {"b": "2"}, {"c": 3})
        assert app.metadata == {"a": 1, "b": 2, "c": 3}

    def test_dashes_in_configured_names_count_as_underscores(self) -> None:
        def comp(num_replicas: int) -> AppDef:
            return received(n=num_replicas)

        assert materialize_appdef(comp, [], {"num-replicas": "2"}).metadata == {"n": 2}

    def test_unknown_names_are_ignored_with_a_warning_that_offers_the_nearest(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def comp(num_replicas: int = 1) -> AppDef:
            return received(n=num_replicas)

        with caplog.at_level(logging.WARNING):
            app = materialize_appdef(comp, [], {"num_replica": "2"}, {"zzz": 3})
        assert app.metadata == {"n": 1}
        assert sorted(record.getMessage() for record in caplog.records) == [
            "comp has no parameter 'num_replica'; did you mean 'num_replicas'? (ignored)",
            "comp has no parameter 'zzz' (ignored)",
        ]

    def test_known_names_log_no_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        materialize_appdef(self.comp, [], {"a": "x", "rest": "y"})
        assert not caplog.records

    @pytest.mark.parametrize(
        ("config", "defaults", "message"),
        [
            ({"i": "x"}, None, "every_type: i: 'x' is not an int"),
            (None, {"i": "x"}, "every_type: i (a configured default): 'x' is not an int"),
            ({"i": 1.5}, None, "every_type: i: expected int, got 1.5 (float)"),
            ({"i": None}, None, "every_type: i: expected int, got null"),
            ({"s": 5}, None, "every_type: s: expected str, got 5 (int)"),
            ({"env": {"A": 1}}, None, "every_type: env: A: expected str, got 1 (int)"),
            ({"words": {"a": 1}}, None, "every_type: *words: expected a list, got {'a': 1} (dict)"),
            ({"words": [1]}, None, "every_type: *words: expected str, got 1 (int)"),
            (
                None,
                {"i": "x", "b": "y"},
                (
                    "every_type: i (a configured default): 'x' is not an int;"
                    " b (a configured default): 'y' is not a bool: use true, false, yes, no,"
                    " on, off, 1 or 0"
                ),
            ),
        ],
    )
    def test_a_wrong_value_names_its_parameter(
        self, config: dict[str, Any] | None, defaults: dict[str, str] | None, message: str
    ) -> None:
        with pytest.raises(ComponentArgumentError) as error:
            materialize_appdef(every_type, [], defaults, config)
        assert str(error.value) == message

    def test_wrong_value_is_ignored_if_another_source_wins(self) -> None:
        app = materialize_appdef(every_type, ["--i", "2"], {"i": "x"})
        assert app.metadata["i"] == 2


class TestRequired:
    def test_all_missing_parameters_are_named(self) -> None:
        def needy(src: str, dst: str, *, image: str, n: int = 1) -> AppDef:
            return received()

        with pytest.raises(ComponentArgumentError) as error:
            materialize_appdef(needy, ["--n", "2"])
        assert str(error.value) == "needy: missing required arguments: --src, --dst, --image"
        assert error.value.parameter is None

    def test_single_missing_parameter_is_an_attribute_of_the_error(self) -> None:
        def needy(src: str) -> AppDef:
            return received()

        with pytest.raises(ComponentArgumentError, match="missing required argument: --src") as e:
            materialize_appdef(needy, [])
        assert e.value.parameter == "src"


class TestArgumentsFromPython:
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("--i 5", "the arguments must be a list of str, got '--i 5'; split a line with"),
            (None, "the arguments must be a list of str, got None"),
            (5, "the arguments must be a list of str, got 5"),
            ({"i"}, "the arguments must be a list of str, got {'i'}"),
            (["--i", 5], "arguments[1] must be a str, got 5"),
            ([b"--i"], "arguments[0] must be a str, got b'--i'"),
        ],
    )
    def test_arguments_of_wrong_types_are_refused(self, words: Any, message: str) -> None:
        with pytest.raises(ComponentArgumentError) as error:
            materialize_appdef(every_type, words)
        assert str(error.value).startswith(f"every_type: {message}")

    def test_arguments_may_be_a_tuple(self) -> None:
        assert materialize_appdef(every_type, ("--i", "5")).metadata["i"] == 5


class TestAnnotations:
    def test_default_determines_the_type_without_annotation(self) -> None:
        def comp(a, b=1, c=0.5, d=False, e=None, f=Color.RED, g=("x",), h=NO_TYPE_OF_OURS):
            return received(a=a, b=b, c=c, d=d, e=e, f=f, g=g, h=h)

        words = ["--a=1", "--b=2", "--c=2", "--d", "--e=5", "--f=BLUE", "--g=a,b", "--h=x"]
        assert materialize_appdef(comp, words).metadata == {
            "a": "1",
            "b": 2,
            "c": 2.0,
            "d": True,
            "e": "5",
            "f": Color.BLUE,
            "g": ("a", "b"),
            "h": "x",
        }

    def test_return_annotation_need_not_be_importable(self) -> None:
        def comp(a: int) -> Result:
            return received(a=a)

        assert materialize_appdef(comp, ["--a", "1"]).metadata == {"a": 1}

    def test_unresolvable_annotation_is_named(self) -> None:
        def comp(a: int, b: NoSuchType) -> AppDef:  # noqa: F821
            return received()

        def quoted(a: int, b: "NoSuchType") -> AppDef:  # noqa: F821, UP037
            return received()

        with pytest.raises(ComponentTypeError, match="annotation 'NoSuchType' of parameter 'b'"):
            materialize_appdef(quoted, ["--a", "1"])
        with pytest.raises(ComponentTypeError) as error:
            materialize_appdef(comp, ["--a", "1"])
        assert str(error.value).startswith(
            "comp: the annotation 'NoSuchType' of parameter 'b' cannot be resolved: name 'NoSuch"
        )

    def test_unsupported_type_error_names_parameter_and_supported_types(self) -> None:
        def comp(data: bytes) -> AppDef:
            return received()

        for args in (["--data", "x"], []):
            with pytest.raises(ComponentArgumentError, match=r"data: type 'bytes' is not") as error:
                materialize_appdef(comp, args)
            assert "supported types: str, int, float, bool, Literal, Enum, pathlib.Path" in str(
                error.value
            )
        with pytest.raises(ComponentArgumentError, match=r"default\): type 'bytes' is not"):
            materialize_appdef(comp, [], {"data": "x"})

    def test_unsupported_type_can_have_a_default_or_a_python_value(self) -> None:
        def comp(data: bytes = b"x", call: Optional[Callable[[], int]] = None) -> AppDef:
            return received(data=data)

        assert materialize_appdef(comp, []).metadata == {"data": b"x"}
        assert materialize_appdef(comp, [], None, {"data": b"y"}).metadata == {"data": b"y"}

    def test_kwargs_are_refused(self) -> None:
        def comp(a: int = 1, **extra: str) -> AppDef:
            return received()

        with pytest.raises(TypeError, match=r"comp cannot be a component: \*\*extra") as error:
            materialize_appdef(comp, [])
        assert isinstance(error.value, ComponentError)


class TestKindsOfComponents:
    def test_a_class_with_build(self) -> None:
        class Trainer:
            def __init__(self, script: str, *args: str, n: int = 1) -> None:
                self.values = {"script": script, "args": args, "n": n}

            def build(self) -> AppDef:
                return received(**self.values)

        app = materialize_appdef(Trainer, ["--script", "a.py", "--n", "2", "x"])
        assert app.metadata == {"script": "a.py", "args": ("x",), "n": 2}

    def test_a_dataclass_with_build(self) -> None:
        app = materialize_appdef(Launcher, ["--script", "a.py", "--tags", "a,b"])
        assert app.metadata == {"script": "a.py", "tags": ["a", "b"], "n": 1}

    def test_a_class_that_inherits_its_constructor(self) -> None:
        class Special(Launcher):
            pass

        assert materialize_appdef(Special, ["--script", "b"]).metadata["script"] == "b"

    def test_a_class_without_build_is_refused(self) -> None:
        class Nothing:
            pass

        with pytest.raises(ComponentTypeError, match="Class Nothing has no build method"):
            materialize_appdef(Nothing, [])

    def test_a_decorated_function(self) -> None:
        def doubled(fn: Callable[..., AppDef]) -> Callable[..., AppDef]:
            @functools.wraps(fn)
            def wrapper(*args: Any, **kwargs: Any) -> AppDef:
                return fn(*args, **kwargs)

            return wrapper

        @doubled
        def comp(n: int = 1) -> AppDef:
            return received(n=n)

        assert materialize_appdef(comp, ["--n", "3"]).metadata == {"n": 3}

    def test_a_partial(self) -> None:
        def comp(a: int, *, n: int = 1) -> AppDef:
            return received(a=a, n=n)

        partial = functools.partial(comp, n=2)
        assert materialize_appdef(partial, ["--a", "1"]).metadata == {"a": 1, "n": 2}

    def test_a_bound_method_and_a_callable_object(self) -> None:
        class Maker:
            def make(self, n: int) -> AppDef:
                return received(n=n)

            def __call__(self, n: int) -> AppDef:
                return received(n=n)

        assert materialize_appdef(Maker().make, ["--n", "3"]).metadata == {"n": 3}
        assert materialize_appdef(Maker(), ["--n", "3"]).metadata == {"n": 3}


@dataclass
class Launcher:
    script: str
    tags: list[str] = field(default_factory=list)
    n: int = 1

    def build(self) -> AppDef:
        return received(script=self.script, tags=list(self.tags), n=self.n)


class TestResult:
    @pytest.mark.parametrize(
        ("result", "what"),
        [
            (None, "None (is a return missing?)"),
            (5, "an object of type int"),
            ({"name": "x"}, "an object of type dict"),
            (Role("x", image="y"), "an object of type Role"),
        ],
    )
    def test_result_of_another_type_is_named(self, result: Any, what: str) -> None:
        def comp() -> AppDef:
            app: AppDef = result
            return app

        with pytest.raises(TypeError) as error:
            materialize_appdef(comp, [])
        assert str(error.value) == f"comp must return an AppDef, but it returned {what}"
        assert isinstance(error.value, ComponentError)

    def test_wrong_result_of_build_is_named(self) -> None:
        class Wrong:
            def build(self) -> None:
                pass

        with pytest.raises(ComponentTypeError, match=r"Wrong\.build\(\) must return an AppDef"):
            materialize_appdef(Wrong, [])

    @pytest.mark.filterwarnings("error")
    def test_async_component_is_explained(self) -> None:
        async def comp() -> AppDef:
            return received()

        with pytest.raises(ComponentTypeError, match="comp is async"):
            materialize_appdef(comp, [])

    def test_errors_of_the_component_are_unchanged(self) -> None:
        problem = ValueError("exactly one of --script and -m")

        def comp() -> AppDef:
            raise problem

        with pytest.raises(ValueError, match="exactly one") as error:
            materialize_appdef(comp, [])
        assert error.value is problem

    def test_exception_of_a_component_carries_its_location(self) -> None:
        def component() -> AppDef:
            raise KeyError("mine")

        with pytest.raises(KeyError) as info:
            materialize_appdef(component, [])
        line = component.__code__.co_firstlineno + 1
        assert component_error_location(info.value) == f"{__file__}:{line}"
        assert component_error_location(KeyError("of somebody else")) is None

    def test_subclass_of_appdef_is_accepted(self) -> None:
        class Mine(AppDef):
            pass

        assert type(materialize_appdef(lambda: Mine("x"), [])) is Mine


def test_bad_arguments_do_not_exit_the_process() -> None:
    for words in (["--bad"], ["--help"], ["--i", "x"], ["--i"]):
        with pytest.raises((ComponentArgumentError, ComponentHelpRequested)):
            materialize_appdef(every_type, words)


def test_arguments_without_the_call() -> None:
    def comp(a: int, *rest: str, k: str = "x") -> AppDef:
        raise AssertionError("not to be called")

    args = component_args_from_str(comp, ["--a", "1", "y"], {"k": "z"})
    assert args == ComponentArgs(positional_args={"a": 1}, var_args=["y"], kwargs={"k": "z"})


def test_callers_arguments_and_mappings_are_not_changed() -> None:
    words, defaults, config = ["--i", "1", "x", "y"], {"s": "a"}, {"f": 1}
    materialize_appdef(every_type, words, defaults, config)
    assert (words, defaults, config) == (["--i", "1", "x", "y"], {"s": "a"}, {"f": 1})


def test_examples_in_the_docstrings() -> None:
    result = doctest.testmod(materialize)
    assert result.attempted == 3
    assert result.failed == 0
