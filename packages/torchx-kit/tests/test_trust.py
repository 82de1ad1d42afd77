"""Tests of the check of owner and mode."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from types import SimpleNamespace

import pytest

from torchx_kit.trust import USE, WRITE, distrust, is_trusted_folder

FILE, FOLDER = stat.S_IFREG, stat.S_IFDIR


def status(mode: int, uid: int | None = None, gid: int = 500) -> os.stat_result:
    owner = os.geteuid() if uid is None else uid
    return os.stat_result((mode, 1, 1, 1, owner, gid, 0, 0, 0, 0))


@pytest.fixture(autouse=True)
def groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make 500 the private group of this user, and 600 a group of several users."""
    name = pwd.getpwuid(os.geteuid()).pw_name
    user = SimpleNamespace(pw_name=name, pw_gid=500)
    members = {500: SimpleNamespace(gr_name=name, gr_mem=[])}
    members[600] = SimpleNamespace(gr_name="team", gr_mem=[name, "other"])
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: {os.geteuid(): user}[uid])
    monkeypatch.setattr(grp, "getgrgid", lambda gid: members[gid])


@pytest.mark.parametrize(
    ("found", "refused"),
    [
        (status(FILE | 0o644), WRITE),
        (status(FILE | 0o664), WRITE),
        (status(FILE | 0o600), USE),
        (status(FILE | 0o600, uid=0), WRITE),
        (status(FOLDER | 0o1777, uid=0), WRITE),
    ],
)
def test_files_that_only_this_user_and_root_can_change_are_used(
    found: os.stat_result, refused: int
) -> None:
    assert distrust(found, refused) == ""


@pytest.mark.parametrize(
    ("found", "refused", "reason"),
    [
        (status(FILE | 0o664, gid=600), WRITE, "other users can write to it (mode 0664)"),
        (status(FILE | 0o664, gid=700), WRITE, "other users can write to it (mode 0664)"),
        (status(FILE | 0o646), WRITE, "other users can write to it (mode 0646)"),
        (status(FILE | 0o640), USE, "other users can use it (mode 0640)"),
        (status(FOLDER | 0o777), WRITE, "other users can write to it (mode 0777)"),
        (status(FILE | 0o600, uid=12345), WRITE, "it belongs to the user id 12345"),
    ],
)
def test_other_files_are_not_used(found: os.stat_result, refused: int, reason: str) -> None:
    assert distrust(found, refused) == reason


def test_root_uses_the_files_of_the_user_of_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "12345")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert distrust(status(FILE | 0o644, uid=12345)) == ""
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    assert distrust(status(FILE | 0o644, uid=12345))


def test_folders_in_trusted_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_TRUSTED_FOLDERS", "/proj/team:~/shared")
    monkeypatch.setenv("HOME", "/home/me")
    paths = ["/proj/team", "/proj/team/a", "/proj/teams", "/home/me/shared/x", "/"]
    assert [is_trusted_folder(path) for path in paths] == [True, True, False, True, False]
