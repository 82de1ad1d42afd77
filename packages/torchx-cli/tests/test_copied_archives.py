"""Tests of unpacking archives from a replica, some of them hostile, and of packing."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchx_cli.commands.inside.archives import holds_folder, pack, unpack
from torchx_specs.errors import RequestError


def archive(*members: tuple[str, bytes | str | None], **fields: object) -> Iterator[bytes]:
    """Return an archive of files (bytes), links (text) and folders (None), in small pieces."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w|") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.mode = 0o755 if content is None else 0o644
            if content is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
            else:
                info.size = len(content)
            for key, value in fields.items() if content is not None else ():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    data = buffer.getvalue()
    return (data[i : i + 700] for i in range(0, len(data), 700))


def packed(path: Path, name: str) -> list[bytes]:
    chunks: list[bytes] = []
    pack(str(path), name, chunks.append)
    return chunks


def test_a_folder_is_copied_with_links_modes_and_bytes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "closed").mkdir(parents=True)
    (source / "a").write_bytes(bytes(range(256)) * 1000)
    (source / "a").chmod(0o640)
    (source / "again").hardlink_to(source / "a")
    (source / "closed" / "up").symlink_to("../a")
    (source / "closed").chmod(0o550)
    unpack(packed(source, "any"), str(tmp_path / "copy"))
    copy = tmp_path / "copy"
    assert (copy / "a").read_bytes() == (source / "a").read_bytes()
    assert stat.S_IMODE((copy / "a").stat().st_mode) == 0o640
    assert stat.S_IMODE((copy / "closed").stat().st_mode) == 0o550
    assert (copy / "a").stat().st_ino == (copy / "again").stat().st_ino
    assert os.readlink(copy / "closed" / "up") == "../a"
    assert int((copy / "a").stat().st_mtime) == int((source / "a").stat().st_mtime)


def test_a_copy_of_the_current_folder_keeps_all_names(tmp_path: Path) -> None:
    unpack(archive(("./", None), ("./a", None), ("./a/b", b"x")), str(tmp_path / "copy"))
    assert (tmp_path / "copy" / "a" / "b").read_bytes() == b"x"


def test_a_copy_replaces_files_and_not_the_targets_of_links(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / "copy").symlink_to(other)
    unpack(archive(("a", b"new")), str(tmp_path / "copy"))
    assert other.read_text() == "mine"
    assert (tmp_path / "copy").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".partial")] == []


@pytest.mark.parametrize(
    "name", ["../out", "/tmp/out", "root/../../out", "..", "root/a/../../../out"]
)
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(RequestError, match="leads out"):
        unpack(archive(("root", None), (name, b"x")), str(tmp_path / "in" / "copy"))
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "link", ["/etc", "..", "../x", "a/../..", "self/../secret", "../copy/../../x", "a/../../x"]
)
def test_a_link_that_leads_out_is_left_out(
    tmp_path: Path, link: str, caplog: pytest.LogCaptureFixture
) -> None:
    unpack(archive(("root", None), ("root/link", link), ("root/b", b"x")), str(tmp_path / "copy"))
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["b"]
    assert "leads out of the copy" in caplog.text


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("name", ["root/again", "root/a/again"])
def test_a_hard_link_to_a_link_is_left_out(
    tmp_path: Path, name: str, format: int, caplog: pytest.LogCaptureFixture
) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w|", format=format) as tar:
        for path, kind, link in (
            ("root", tarfile.DIRTYPE, ""),
            ("root/a", tarfile.DIRTYPE, ""),
            ("root/a/b", tarfile.DIRTYPE, ""),
            ("root/a/b/up", tarfile.SYMTYPE, "../../c"),
            (name, tarfile.LNKTYPE, "root/a/b/up"),
        ):
            info = tarfile.TarInfo(path)
            info.type, info.linkname, info.mode = kind, link, 0o755
            tar.addfile(info)
    unpack([buffer.getvalue()], str(tmp_path / "copy"))
    assert os.readlink(tmp_path / "copy" / "a" / "b" / "up") == "../../c"
    assert not os.path.lexists(tmp_path / "copy" / name.removeprefix("root/"))
    assert "a hard link to a link" in caplog.text


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_header_of_a_gigabyte_is_not_read(tmp_path: Path, kind: bytes) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 1 << 30

    def chunks() -> Iterator[bytes]:
        yield header.tobuf(tarfile.GNU_FORMAT)
        yield bytes(1 << 14)  # the rest of tarfile's block
        pytest.fail("it reads more")

    with pytest.raises(RequestError, match="is damaged: a header has 1073741824 bytes"):
        unpack(chunks(), str(tmp_path / "copy"))


@pytest.mark.parametrize(
    "headers",
    [{"mtime": "nan"}, {"mtime": "1e400"}, {"linkpath": "a\0b"}, {"GNU.sparse.map": "x,y"}],
    ids=lambda headers: next(iter(headers)),
)
def test_a_header_that_no_file_can_have_is_an_error(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    folder, info = tarfile.TarInfo("root"), tarfile.TarInfo("root/x")
    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
    info.type = tarfile.SYMTYPE if "linkpath" in headers else tarfile.REGTYPE
    info.pax_headers = {**headers, "GNU.sparse.size": "1"}
    data = folder.tobuf(tarfile.PAX_FORMAT) + info.tobuf(tarfile.PAX_FORMAT) + bytes(1024)
    with pytest.raises(RequestError, match="the archive of copy is damaged: "):
        unpack([data], str(tmp_path / "copy"))


def test_the_longest_name_of_a_file_is_copied(tmp_path: Path) -> None:
    name = "\u20ac" * 85  # 255 bytes
    unpack(archive(("root", None), (f"root/{name}", b"x")), str(tmp_path / "copy"))
    assert (tmp_path / "copy" / name).read_bytes() == b"x"


def test_a_file_is_never_written_through_a_link(tmp_path: Path) -> None:
    members = archive(("root", None), ("root/d", None), ("root/link", "d"), ("root/link/x", b"x"))
    with pytest.raises(RequestError, match="cannot write"):
        unpack(members, str(tmp_path / "copy"))
    assert not (tmp_path / "copy" / "d" / "x").exists()


def test_a_hard_link_to_a_file_outside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    fields = {"type": tarfile.LNKTYPE, "linkname": "root/../secret"}
    with pytest.raises(RequestError, match="leads out"):
        unpack(archive(("root", None), ("root/a", b""), **fields), str(tmp_path / "copy"))


def test_set_uid_and_write_access_of_others_are_cleared(tmp_path: Path) -> None:
    unpack(archive(("a", b"x"), mode=0o6777), str(tmp_path / "copy"))
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o755


def test_devices_and_fifos_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for kind in (tarfile.FIFOTYPE, tarfile.CHRTYPE):
        unpack(archive(("a", b""), type=kind), str(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()
    assert caplog.text.count("device or FIFO") == 2


def test_a_damaged_archive_is_one_line(tmp_path: Path) -> None:
    whole = b"".join(archive(("a", b"x" * 5000)))
    for data in (whole[:2000], b"garbage" * 200, b""):
        with pytest.raises(RequestError) as caught:
            unpack([data], str(tmp_path / "copy"))
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "copy").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_missing_target_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="No such file or directory"):
        unpack(archive(("a", b"x")), str(tmp_path / "no" / "copy"))


def test_a_folder_in_an_archive_is_recognised() -> None:
    assert holds_folder(archive(("a/", None)))
    assert not holds_folder(archive(("a", b"")))
    assert not holds_folder([])


def test_sockets_and_fifos_are_not_packed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "source").mkdir()
    os.mkfifo(tmp_path / "source" / "fifo")
    unpack(packed(tmp_path / "source", "x"), str(tmp_path / "copy"))
    assert list((tmp_path / "copy").iterdir()) == []
    assert "fifo is a device or FIFO" in caplog.text


def test_an_unreadable_path_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot read"):
        packed(tmp_path / "missing", "x")
