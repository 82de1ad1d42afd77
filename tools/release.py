"""Build a release: ``python tools/release.py FOLDER``.

``FOLDER/files`` gets the wheel and the source distribution of each package. Both are built from the
checkout, and again from the source distribution; the second build must give the same bytes. Each
file in them has the time ``SOURCE_DATE_EPOCH``, by default the time of the last commit.
``FOLDER/simple`` is a package index (PEP 503), for ``pip install --index-url`` or a web server.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from workspace import ROOT, members

BUILD = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d"]


def build(source: Path, target: Path) -> list[Path]:
    """Build the source distribution and the wheel of a project; return both files."""
    subprocess.run([*BUILD, str(target)], cwd=source, stdout=subprocess.DEVNULL, check=True)
    return sorted(target.iterdir())


def build_twice(source: Path, files: Path) -> None:
    """Build a project from its folder and from its source distribution, and compare the files."""
    with tempfile.TemporaryDirectory() as name:
        first = build(source, Path(name, "first"))
        [sdist] = [path for path in first if path.suffix == ".gz"]
        with tarfile.open(sdist) as archive:
            archive.extractall(name, filter="data")
        second = build(Path(name, sdist.name.removesuffix(".tar.gz")), Path(name, "second"))
        for one, other in zip(first, second, strict=True):
            if (one.name, one.read_bytes()) != (other.name, other.read_bytes()):
                raise SystemExit(f"{one.name} is not reproducible: two builds differ")
            (files / one.name).write_bytes(one.read_bytes())


def write_page(folder: Path, links: list[str]) -> None:
    """Write a page of the index; each item of ``links`` is a link without ``<a`` and ``</a>``."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        "<!DOCTYPE html>",
        "<title>Packages</title>",
        *(f"<a {link}</a><br>" for link in links),
    ]
    (folder / "index.html").write_text("\n".join(lines) + "\n", "utf-8")


def write_index(folder: Path) -> None:
    """Write the index of the files in ``folder``/files to ``folder``/simple."""
    write_page(folder / "simple", [f'href="{one.name}/">{one.name}' for one in members()])
    for member in members():
        python = member.project["requires-python"].replace(">", "&gt;")
        links = []
        for path in sorted((folder / "files").glob(f"{member.module}-[0-9]*")):
            address = (
                f"../../files/{path.name}#sha256={hashlib.sha256(path.read_bytes()).hexdigest()}"
            )
            links.append(f'href="{address}" data-requires-python="{python}">{path.name}')
        write_page(folder / "simple" / member.name, links)


def main(folder: Path) -> None:
    files = folder / "files"
    files.mkdir(parents=True)
    commit_time = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    os.environ.setdefault(
        "SOURCE_DATE_EPOCH", subprocess.check_output(commit_time, text=True).strip()
    )
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda member: build_twice(member.folder, files), members()))
    write_index(folder)
    print(f"{len(list(files.iterdir()))} files, each built twice with the same result: {files}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
