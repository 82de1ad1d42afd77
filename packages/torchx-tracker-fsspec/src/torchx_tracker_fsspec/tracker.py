"""The tracker: records of runs as small files, in one directory per run.

::

    ROOT/<base32 of run id>/metadata/<time>...    {"metadata": {"loss": 0.1}}
    ROOT/<base32 of run id>/artifacts/<time>...   {"name": ..., "path": ..., "metadata": ...}
    ROOT/<base32 of run id>/sources/<base32 of source id>       one line for each artifact
    ROOT/<base32 of source id>/descendants/<base32 of run id>   the same lines, in the source's run

Older TorchX releases use the same layout; each release can read the records of the others. The
following files are new: older releases ignore them.

::

    ROOT/<run>/artifacts.index   copy of all artifacts in one file, which is faster to read
    ROOT/<run>/links/<...>       one link per file, for stores without appending and for long ids
    ROOT/<run>/id                the run's id, if it cannot be the name of a directory
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torchx_specs.trackers.api import (
    Lineage,
    LineageLink,
    TrackerArtifact,
    TrackerBackendError,
    TrackerBase,
    TrackerSource,
    TrackerValueError,
)
from torchx_tracker_fsspec import names
from torchx_tracker_fsspec.config import inline_config, local_path, read_config
from torchx_tracker_fsspec.local import LocalStore

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from torchx_tracker_fsspec.remote import RemoteStore

_METADATA = "metadata"
_ARTIFACTS = "artifacts"
_INDEX = "artifacts.index"
_SOURCES = "sources"
_DESCENDANTS = "descendants"
_LINKS = "links"
_ID = "id"


def create(config: str | None) -> FsspecTracker:
    """Return the tracker that a configuration describes.

    Args:
        config: See :func:`torchx_tracker_fsspec.config.read_config`. All settings except
            ``protocol``, ``root_path`` and ``auto_mkdir`` are passed to ``fsspec.filesystem``.

    Raises:
        TrackerValueError: The configuration is missing or invalid, or ``root_path`` does not exist.
        TrackerBackendError: The file system cannot be reached.
    """
    options = read_config(config)
    protocol = str(options.pop("protocol"))
    root = str(options.pop("root_path"))
    make = options.pop("auto_mkdir", False) is True
    if protocol in ("file", "local"):
        return FsspecTracker._with_store(LocalStore(os.path.abspath(local_path(root)), make=make))
    from torchx_tracker_fsspec.remote import RemoteStore

    def connect() -> AbstractFileSystem:
        import fsspec

        return fsspec.filesystem(protocol, **options)

    return FsspecTracker._with_store(RemoteStore(connect, root, make=make))


# The runner calls this to pass the configuration to a remote job (torchx_runner.tracker_configs).
create.inline_config = inline_config  # type: ignore[attr-defined]


class FsspecTracker(TrackerBase):
    """A tracker that stores records as files in a directory.

    Any number of processes on any number of machines may write: each record is a new file that
    appears only when it is complete. If two processes set the same key, the record with the later
    time wins, according to the clocks of their machines.

    Args:
        fs: The file system.
        root_dir: Path of the directory.

    Raises:
        TrackerValueError: The directory does not exist.
    """

    _store: LocalStore | RemoteStore

    def __init__(self, fs: AbstractFileSystem, root_dir: str) -> None:
        if f"{type(fs).__module__}.{type(fs).__name__}" == (
            "fsspec.implementations.local.LocalFileSystem"
        ):
            self._store = LocalStore(os.path.abspath(local_path(root_dir)))
        else:
            from torchx_tracker_fsspec.remote import RemoteStore

            self._store = RemoteStore(lambda: fs, root_dir)

    @classmethod
    def _with_store(cls, store: LocalStore | RemoteStore) -> FsspecTracker:
        tracker = cls.__new__(cls)
        tracker._store = store
        return tracker

    def add_metadata(self, run_id: str, **kwargs: object) -> None:
        """Record key-value pairs; an existing key is replaced."""
        self._put(run_id, _METADATA, {"metadata": kwargs})

    def metadata(self, run_id: str) -> Mapping[str, object]:
        """Return the metadata of a run; a damaged file is skipped with a warning."""
        merged: dict[str, object] = {}
        for name, record in self._records(run_id, _METADATA):
            pairs = record.get("metadata")
            if isinstance(pairs, dict):
                merged.update(pairs)
            else:
                self._warn_damaged(names.encode(run_id), _METADATA, name, "'metadata' is missing")
        return merged

    def history(self, run_id: str) -> Mapping[str, list[tuple[float, float]]]:
        """Return the numbers that each call of :meth:`add_metadata` has recorded.

        The step of a number is the number ``step`` or ``epoch`` of the same call; without one, it
        counts the earlier values of the same key.
        """
        found: dict[str, list[tuple[float, float]]] = {}
        for _, record in self._records(run_id, _METADATA):
            pairs = record.get("metadata")
            if not isinstance(pairs, dict):
                continue
            numbers = {k: v for k, v in pairs.items() if type(v) in (int, float)}
            step = numbers.pop("step", numbers.get("epoch"))
            for key, value in numbers.items():
                points = found.setdefault(key, [])
                points.append((len(points) if step is None else step, value))
        return found

    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Record an artifact; an existing artifact with the same name is replaced."""
        content = {
            "name": name,
            "path": os.fspath(path),
            "metadata": None if metadata is None else dict(metadata),
        }
        record, data = self._put(run_id, _ARTIFACTS, content)
        if self._store.appends:
            line = b'["%b",%b]\n' % (record.encode(), data)
            self._store.append(names.encode(run_id), _INDEX, line)

    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        """Return the artifacts of a run by name; a damaged file is skipped with a warning."""
        found: dict[str, TrackerArtifact] = {}
        for record_name, record in self._records(run_id, _ARTIFACTS, _INDEX):
            try:
                name = record["name"]
                found[name] = TrackerArtifact(name, record["path"], record.get("metadata"))
            except (KeyError, TypeError):
                run = names.encode(run_id)
                self._warn_damaged(run, _ARTIFACTS, record_name, "'name' or 'path' is missing")
        return found

    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        """Record that a run was made from another run, or from one of its artifacts."""
        run, source = names.encode(run_id), names.encode(source_id)
        line = names.encode_line(artifact_name)
        self._store_id(run_id, run)
        if not self._store.appends or names.alias(source_id):
            self._put_link(run, source, source_id, artifact_name)
        self._store.add_line(run, _SOURCES, source, line)
        if self._store.has_run(source):
            self._store.add_line(source, _DESCENDANTS, run, line)

    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        """Return the sources of a run; with ``artifact_name``, only sources with that artifact."""
        run = names.encode(run_id)
        return [
            TrackerSource(link.source_run_id, link.artifact_name)
            for link in self._links(run, run_id, self._store.names(run, _SOURCES))
            if artifact_name is None or link.artifact_name == artifact_name
        ]

    def lineage(self, run_id: str) -> Lineage:
        """Return the ancestors and descendants of a run; this lists the sources of all runs."""
        from torchx_kit.trackers.lineage import lineage_from_links

        sources_of: dict[str, list[str]] = {}
        for chunk in self._store.runs():
            runs = [name.decode("utf-8", "surrogateescape") for name in chunk]
            found = self._store.names_of_many(runs, _SOURCES)
            sources_of.update(pair for pair in zip(runs, found, strict=True) if pair[1])
        # Find the related runs by file names alone, and then read only the files of these runs.
        rough = lineage_from_links(
            names.encode(run_id),
            (LineageLink(run, source) for run, sources in sources_of.items() for source in sources),
        )
        links: list[LineageLink] = []
        for run in dict.fromkeys(link.run_id for link in rough.links):
            decoded = names.decode(os.fsencode(run))
            if decoded is not None:
                links += self._links(run, self._run_id(decoded, run), sources_of[run])
        return lineage_from_links(run_id, links)

    def run_ids(self, **kwargs: str) -> list[str]:
        """Return the ids of the runs, unordered.

        Args:
            **kwargs: ``parent_run_id=...`` returns only the runs made from that run.

        Raises:
            TrackerValueError: ``kwargs`` has another key.
        """
        from torchx_kit.trackers.checks import parent_run_filter

        parent_run_id = parent_run_filter(kwargs)
        parent = None if parent_run_id is None else names.encode(parent_run_id)
        return list(self._run_ids(parent))

    def _run_ids(self, parent: str | None) -> Iterator[str]:
        store = self._store
        for runs in store.runs() if parent is None else store.runs_having(_SOURCES, parent):
            for run in runs:
                run_id = names.decode(run)
                if run_id is not None:  # otherwise, it is not a directory of a run
                    yield self._run_id(run_id, run.decode()) if names.is_alias(run_id) else run_id

    def __repr__(self) -> str:
        return f"<FsspecTracker: root_path={self._store.root}>"

    def _put(self, run_id: str, category: str, content: dict[str, Any]) -> tuple[str, bytes]:
        """Write a record; return its name and content."""
        data = _to_json(run_id, content)
        run = names.encode(run_id)
        name = names.record_names.new()
        self._store.put(run, category, name, data)
        self._store_id(run_id, run)
        return name, data

    def _records(
        self, run_id: str, category: str, index: str | None = None
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return the records of a run with their names, oldest first."""
        run = names.encode(run_id)
        record_names = names.records(self._store.names(run, category))
        records = self._indexed(run, index) if index and record_names else {}
        missing = (
            [name for name in record_names if name not in records] if records else record_names
        )
        files = self._store.read(run, category, missing)
        for name, record in self._parsed(run, category, files):
            records[name] = record
        return [(name, records[name]) for name in record_names if name in records]

    def _indexed(self, run: str, index: str) -> dict[str, dict[str, Any]]:
        """Return the records in an index by name; damaged entries are left out."""
        data = self._store.read_file(run, index) if self._store.appends else None
        if not data:
            return {}
        lines = data.split(b"\n")
        parsed = _all_from_json(lines[:-1])
        if parsed is None:  # a line is incomplete, for example because the disk was full
            parsed = [line for line in map(_from_json, lines) if line is not None]
        return {
            line[0]: line[1]
            for line in parsed
            if isinstance(line, list)
            and len(line) == 2
            and isinstance(line[0], str)
            and isinstance(line[1], dict)
        }

    def _parsed(
        self, run: str, category: str, files: list[tuple[str, bytes | Exception]]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the name and the JSON object of each file; skip other content with a warning."""
        for name, data in files:
            record = _from_json(data) if isinstance(data, bytes) else data
            if isinstance(record, dict):
                yield name, record
            else:
                reason = str(record) if isinstance(record, Exception) else "it is not a JSON object"
                self._warn_damaged(run, category, name, reason)

    def _warn_damaged(self, run: str, category: str, name: str, reason: str) -> None:
        import logging

        logging.getLogger("torchx_tracker_fsspec").warning(
            "skipping the damaged file '%s': %s", self._store.path(run, category, name), reason
        )

    def _put_link(self, run: str, source: str, source_id: str, artifact_name: str | None) -> None:
        from hashlib import sha256

        content = {"source_id": source_id, "artifact_name": artifact_name}
        data = _to_json(source_id, content)
        # The base32 of a source and a digest would be too long for one name.
        name = f"{sha256(source.encode()).hexdigest()[:32]}-{sha256(data).hexdigest()[:32]}"
        self._store.put(run, _LINKS, name, data)

    def _links(self, run: str, run_id: str, sources: list[str]) -> list[LineageLink]:
        """Return the links of a run to some sources.

        Args:
            run: Name of the run's directory.
            run_id: Id of the run.
            sources: Names of the files in ``<run>/sources`` for these sources.
        """
        found: dict[LineageLink, None] = {}
        ids: dict[str, str] = {}
        extra_links: list[LineageLink] = []
        link_names = sorted(self._store.names(run, _LINKS))
        files = self._store.read(run, _LINKS, link_names)
        for name, record in self._parsed(run, _LINKS, files):
            source_id, artifact = record.get("source_id"), record.get("artifact_name")
            if not isinstance(source_id, str) or not source_id:
                self._warn_damaged(run, _LINKS, name, "'source_id' is missing")
                continue
            ids[names.encode(source_id)] = source_id
            extra_links.append(LineageLink(run_id, source_id, artifact))
        for source, data in self._store.read(run, _SOURCES, sorted(sources)):
            source_id = names.decode(os.fsencode(source))
            if source_id is None:
                continue
            try:
                if isinstance(data, Exception):
                    raise data
                artifacts = names.decode_lines(data.decode())
            except (UnicodeDecodeError, OSError, TrackerBackendError) as e:
                self._warn_damaged(run, _SOURCES, source, str(e))
                artifacts = [None]
            for artifact in artifacts:
                found[LineageLink(run_id, ids.get(source, source_id), artifact)] = None
        wanted = set(sources)
        found.update(
            dict.fromkeys(
                link for link in extra_links if names.encode(link.source_run_id) in wanted
            )
        )
        return list(found)

    def _store_id(self, run_id: str, run: str) -> None:
        if names.alias(run_id):
            self._store.put_once(run, _ID, _to_json(run_id, {"run_id": run_id}))

    def _run_id(self, run_id: str, run: str) -> str:
        """Return the id of a run from the decoded name of its directory."""
        if names.is_alias(run_id):
            record = _from_json(self._store.read_file(run, _ID) or b"")
            if isinstance(record, dict) and isinstance(record.get("run_id"), str):
                return str(record["run_id"])
        return run_id


def _to_json(run_id: str, content: dict[str, Any]) -> bytes:
    """Return a record as JSON.

    Raises:
        TrackerValueError: JSON cannot represent a value; the message names its key.
    """
    import json

    try:
        return json.dumps(content).encode()
    except (TypeError, ValueError, RecursionError) as error:
        from torchx_kit.trackers.checks import json_text

        inner = content.get("metadata") or {}
        pairs = {**{k: v for k, v in content.items() if k != "metadata"}, **inner}
        for key, value in pairs.items():
            json_text(key, run_id, value)
        raise TrackerValueError(f"run '{run_id}': {error}") from None


def _from_json(data: bytes) -> Any:
    import json

    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _all_from_json(texts: list[bytes]) -> list[Any] | None:
    """Parse all texts at once; return None if one of them is not JSON."""
    parsed = _from_json(b"[" + b",".join(texts) + b"]") if texts else []
    return parsed if isinstance(parsed, list) and len(parsed) == len(texts) else None
