"""Tests of AppDryRunInfo."""

from __future__ import annotations

from collections.abc import Mapping

from torchx_specs import AppDef, AppDryRunInfo, CfgVal


def test_repr_is_the_formatted_request() -> None:
    info = AppDryRunInfo({"a": 1}, lambda request: f"request of {request['a']}")
    assert (str(info), repr(info)) == ("request of 1", "request of 1")
    info.request = {"a": 2}
    assert str(info) == "request of 2"


def test_new_info_has_no_app_and_no_cfg() -> None:
    info = AppDryRunInfo("r", str)
    assert (info.app, info.cfg, info._app, info._cfg, info._scheduler) == (None, {}, None, {}, None)
    assert info._fmt("x") == "x"


def test_older_names_are_the_same_attributes() -> None:
    info = AppDryRunInfo("r", str)
    app = AppDef("a")
    info._app, info._cfg, info._scheduler = app, {"k": 1}, "local"
    assert (info.app, info.cfg) == (app, {"k": 1})
    other = AppDef("b")
    info.app, info.cfg = other, {"k": 2}
    assert (info._app, info._cfg) == (other, {"k": 2})


def test_one_or_two_type_arguments() -> None:
    assert AppDryRunInfo[str] is not None
    assert AppDryRunInfo[str, Mapping[str, CfgVal]] is not None
    made = AppDryRunInfo[str]("r", str)
    assert isinstance(made, AppDryRunInfo)
