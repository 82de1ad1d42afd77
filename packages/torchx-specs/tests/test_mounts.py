"""Tests of mounts and their notation."""

from __future__ import annotations

import pytest

from torchx_specs import BindMount, DeviceMount, MountType, VolumeMount, parse_mounts
from torchx_specs.errors import RequestError

Mount = BindMount | VolumeMount | DeviceMount


@pytest.mark.parametrize(
    ("opts", "mounts"),
    [
        ("", []),
        ("type=bind,src=/a,dst=/b", [BindMount("/a", "/b")]),
        ("type=bind,source=/a,target=/b,readonly", [BindMount("/a", "/b", True)]),
        ("type=bind,src=/a,destination=/b,read_only", [BindMount("/a", "/b", True)]),
        ("type=bind,src=/a,dst=/b,readonly=true", [BindMount("/a", "/b", True)]),
        ("type=bind,src=/a,dst=/b,readonly=false", [BindMount("/a", "/b", False)]),
        ("type=bind,src=/a=b,dst=/c", [BindMount("/a=b", "/c")]),
        ("type=volume,src=v,dst=/b", [VolumeMount("v", "/b")]),
        ("type=volume,src=v,dst=/b,readonly", [VolumeMount("v", "/b", True)]),
        ("/a:/b", [BindMount("/a", "/b")]),
        (
            "/a:/b:ro,type=volume,src=v,dst=/c,a.b:/d",
            [
                BindMount("/a", "/b", True),
                VolumeMount("v", "/c"),
                BindMount("a.b", "/d"),
            ],
        ),
        ("type=device,src=/dev/x", [DeviceMount("/dev/x", "/dev/x", "rwm")]),
        ("type=device,src=/dev/x,dst=/dev/y,perm=r", [DeviceMount("/dev/x", "/dev/y", "r")]),
        (
            "type=bind,src=/a,dst=/b,type=volume,src=v,dst=/c,readonly,type=device,src=/dev/x",
            [BindMount("/a", "/b"), VolumeMount("v", "/c", True), DeviceMount("/dev/x", "/dev/x")],
        ),
    ],
)
def test_mounts(opts: str, mounts: list[Mount]) -> None:
    assert parse_mounts(opts.split(",") if opts else []) == mounts


def test_home_in_the_source_of_a_bind_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    bind, volume = parse_mounts(
        ["type=bind", "src=~/a", "dst=/b", "type=volume", "src=~v", "dst=/c"]
    )
    assert (bind, volume) == (BindMount("/home/me/a", "/b"), VolumeMount("~v", "/c"))


@pytest.mark.parametrize(
    ("opts", "error", "said"),
    [
        ("src=/a,type=bind", KeyError, "type must be specified first, before 'src=/a'"),
        (
            "type=bind,scr=/a",
            KeyError,
            "unknown mount option 'scr' in 'scr=/a'; did you mean 'src'",
        ),
        ("type=bind,dst=/b", KeyError, "a mount of type 'bind' needs src=<path>"),
        ("type=bind,src=/a", KeyError, "a mount of type 'bind' needs dst=<path>"),
        ("type=bind,src=,dst=/b", KeyError, "needs src=<path>"),
        ("type=volume,src=v", KeyError, "a mount of type 'volume' needs dst=<path>"),
        ("type=device", KeyError, "needs src=<path>"),
        ("type=foo,src=/a", ValueError, "invalid mount type 'foo', must be one of ['bind'"),
        ("type", ValueError, "invalid mount type ''"),
        ("type=device,src=/d,perm=rx", ValueError, "invalid permission 'x' in 'perm=rx'"),
        (
            "type=bind,src=/a,dst=/b,readonly=maybe",
            ValueError,
            "mount option 'readonly': 'maybe' is not a bool",
        ),
    ],
)
def test_errors(opts: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as raised:
        parse_mounts(opts.split(","))
    assert said in str(raised.value)
    assert isinstance(raised.value, RequestError)


def test_mount_types() -> None:
    assert [t.value for t in MountType] == ["bind", "volume", "device"]
    assert MountType("bind") is MountType.BIND
