"""The tracker: each process that records a TorchX run writes a W&B run of its own.

W&B's documentation warns that several processes must not use one run id at the same time. The W&B
runs of one TorchX run therefore have different ids, and the same group. Reads use all of them.

=============  ==================================================================================
metadata       values in the config of the W&B run
artifacts      W&B artifacts with a reference to the path; no file is uploaded
sources        values in the config of the W&B run
=============  ==================================================================================
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from torchx_kit.trackers.checks import (
    check_run_id,
    check_source_id,
    json_text,
    parent_run_filter,
    sources_with_artifact,
)
from torchx_kit.trackers.lineage import lineage_from_links, links_to_sources
from torchx_specs.errors import one_line
from torchx_specs.trackers.api import (
    Lineage,
    LineageLink,
    TrackerArtifact,
    TrackerBackendError,
    TrackerBase,
    TrackerSource,
    TrackerValueError,
)
from torchx_tracker_wandb import encoding, journal
from torchx_tracker_wandb.config import inline_config, read_config
from torchx_tracker_wandb.encoding import Record

if TYPE_CHECKING:
    import wandb

_DEFAULT_PROJECT = "torchx"
_ARTIFACT_TYPE = "torchx"
#: How long a tracker waits after a failed start of a W&B run before the next attempt, in seconds.
#: An attempt may take 90 seconds, which would otherwise delay every call of a job.
_PAUSE_AFTER_FAILURE = 600.0
_log = logging.getLogger(__name__)


def create_tracker(config: str | None) -> WandbTracker:
    """Return the tracker that a configuration describes, without contacting W&B.

    Args:
        config: See :func:`torchx_tracker_wandb.config.read_config`.

    Raises:
        TrackerValueError: The configuration is invalid.
    """
    settings: dict[str, Any] = {**read_config(config)}
    return WandbTracker(**settings)


# The runner calls this to pass the configuration to a remote job (torchx_runner.tracker_configs).
create_tracker.inline_config = inline_config  # type: ignore[attr-defined]


class WandbTracker(TrackerBase):
    """A tracker that records runs with Weights & Biases.

    Args:
        project: W&B project (default: ``$WANDB_PROJECT`` or W&B's settings files, else ``torchx``).
        entity: User or team that owns the project (default: W&B's own default).
        mode: ``online``, ``offline`` or ``disabled`` (default: ``$WANDB_MODE`` or W&B's settings
            files, else ``online``). In the mode ``disabled``, records are in memory only.
        dir: Directory in which W&B creates its directory ``wandb`` (default: ``$WANDB_DIR``, else
            the working directory). It is created if it does not exist.
        clock: Function that returns a time in seconds.
    """

    def __init__(
        self,
        project: str | None = None,
        entity: str | None = None,
        mode: str | None = None,
        dir: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._project = project
        self._entity = entity
        self._mode: Any = mode  # W&B's parameter has a Literal type
        self._dir = os.path.abspath(os.path.expanduser(dir)) if dir else None
        self._process = os.getpid()
        self._runs: dict[str, wandb.Run] = {}
        self._own: dict[str, list[Record]] = {}
        self._lock = Lock()
        self._warned = False
        self._failure: tuple[float, TrackerBackendError] | None = None

    def add_metadata(self, run_id: str, **kwargs: object) -> None:
        """Record key-value pairs in the run's config; an existing key is replaced."""
        # The copy does not change if the caller changes a list or a dictionary later.
        copied = {key: json.loads(json_text(key, run_id, value)) for key, value in kwargs.items()}
        now = time.time_ns()
        self._record(
            run_id,
            [
                {"kind": encoding.METADATA, "key": key, "value": value, "time": now}
                for key, value in copied.items()
            ],
        )

    def metadata(self, run_id: str) -> Mapping[str, object]:
        """Return the metadata of a run."""
        return encoding.metadata(self._records(run_id))

    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Record an artifact by a reference to its path; an artifact of that name is replaced.

        W&B accepts a reference to a URI, or to an existing local file or directory. For any other
        path, the W&B artifact has the path in its metadata only.
        """
        record: Record = {
            "kind": encoding.ARTIFACT,
            "name": name,
            "path": os.fspath(path),
            "metadata": None if metadata is None else dict(metadata),
            "time": time.time_ns(),
        }
        self._record(run_id, [json.loads(json_text(name, run_id, record))])

    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        """Return the artifacts of a run by name; each path is the recorded one."""
        return encoding.artifacts(self._records(run_id))

    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        """Record that a run was made from another run, or from one of its artifacts."""
        check_source_id(run_id, source_id)
        record: Record = {
            "kind": encoding.SOURCE,
            "source_id": source_id,
            "artifact_name": artifact_name,
            "time": time.time_ns(),
        }
        self._record(run_id, [record])

    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        """Return the sources of a run; with ``artifact_name``, only sources with that artifact."""
        found = encoding.sources(self._records(run_id))
        return sources_with_artifact(found, artifact_name)

    def lineage(self, run_id: str) -> Lineage:
        """Return the ancestors and descendants of a run. All runs of the project are read."""
        return lineage_from_links(run_id, self._links())

    def run_ids(self, **kwargs: str) -> list[str]:
        """Return the ids of the runs, newest first.

        Args:
            **kwargs: ``parent_run_id=...`` returns only the runs made from that run.

        Raises:
            TrackerValueError: ``kwargs`` has another key.
        """
        parent = parent_run_filter(kwargs)
        if parent is None:
            return list(dict.fromkeys(run_id for run_id, _ in self._read()))
        return list(dict.fromkeys(x.run_id for x in self._links() if x.source_run_id == parent))

    def close(self) -> None:
        """Finish the W&B runs of this process; online, wait until W&B has received them."""
        with self._lock:
            runs, self._runs = self._runs_of_process(), {}
        for run_id, run in runs.items():
            with _translated_errors(f"finish run '{run_id}'"):
                run.finish()

    def __repr__(self) -> str:
        return f"<WandbTracker: project={self._project}, entity={self._entity}, mode={self._mode}>"

    # -- The methods below write records.

    def _record(self, run_id: str, records: list[Record]) -> None:
        check_run_id(run_id)
        with self._lock:
            run = self._runs_of_process().get(run_id) or self._start_unless_failed(run_id)
            if self._is_offline:
                journal.append(_folder(run), records)
            else:
                self._own.setdefault(run_id, []).extend(records)
            with _translated_errors(f"record in run '{run_id}'"):
                config: Any = run.config  # W&B does not annotate the methods of its config
                config.update(encoding.config_of_records(records), allow_val_change=True)
                for record in records:
                    if record["kind"] == encoding.ARTIFACT:
                        run.log_artifact(_reference(run_id, record))

    def _runs_of_process(self) -> dict[str, wandb.Run]:
        """Return the W&B runs of this process; a forked child does not use its parent's runs."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._runs = {}
        return self._runs

    def _start_unless_failed(self, run_id: str) -> wandb.Run:
        """Start a W&B run. Shortly after a failed start, raise that start's error instead."""
        if self._failure is not None:
            failed_at, error = self._failure
            if self._clock() < failed_at + _PAUSE_AFTER_FAILURE:
                raise error
        try:
            return self._start(run_id)
        except TrackerBackendError as e:
            self._failure = (self._clock(), e)
            raise

    def _start(self, run_id: str) -> wandb.Run:
        with _translated_errors(f"start run '{run_id}'"):
            import wandb

            if self._dir:
                os.makedirs(self._dir, exist_ok=True)
            run = wandb.init(
                project=self._project_name,
                entity=self._entity,
                dir=self._dir,
                mode=self._mode,
                id=f"{encoding.digest(run_id)}-{uuid4().hex[:8]}",
                name=encoding.display_name(run_id),
                group=encoding.display_name(run_id),
                config=encoding.config_values(run_id),
                # The job's own W&B run, if there is one, stays active and unchanged.
                reinit="create_new",
                settings=wandb.Settings(
                    silent=True, console="off", disable_git=True, x_disable_stats=True
                ),
            )
        if self._is_offline:
            journal.append(_folder(run), run_id)
        self._runs[run_id] = run
        return run

    # -- The methods below read records.

    def _records(self, run_id: str) -> list[Record]:
        check_run_id(run_id)
        found = self._read(encoding.digest(run_id))
        return [record for owner, records in found if owner == run_id for record in records]

    def _links(self) -> Iterator[LineageLink]:
        by_run: dict[str, list[Record]] = {}
        for run_id, records in self._read():
            by_run.setdefault(run_id, []).extend(records)
        for run_id, records in by_run.items():
            yield from links_to_sources(run_id, encoding.sources(records))

    def _read(self, digest: str | None = None) -> Iterator[tuple[str, list[Record]]]:
        """Yield TorchX run ids, each with records of the run; an id may occur several times.

        Unless W&B is offline, the runs in this process's memory come first, whatever ``digest`` is.

        Args:
            digest: Digest of the TorchX run id to read from the server or the journal; None reads
                all runs.
        """
        if self._is_offline:
            self._warn_offline()
            yield from journal.read(self._wandb_dir, digest or "*")
            return
        # Yield this process's records from memory: W&B's server receives them only some time later.
        yield from reversed([(run_id, list(own)) for run_id, own in self._own.items()])
        if not self._is_disabled:
            yield from self._read_server(digest)

    def _read_server(self, digest: str | None) -> Iterator[tuple[str, list[Record]]]:
        with _translated_errors(f"read project '{self._project_name}'"):
            import wandb

            api = wandb.Api()
            entity = self._entity or wandb.setup().settings.entity or api.default_entity
            filters = {f"config.{encoding.RUN_DIGEST}": digest or {"$exists": True}}
            path = f"{entity}/{self._project_name}"
            try:
                configs = [run.config for run in api.runs(path, filters, order="-created_at")]
            except ValueError as e:
                if "Could not find project" not in str(e):
                    raise
                configs = []  # nothing was recorded yet
        for config in configs:
            run_id = encoding.run_id_in_config(config)
            if run_id is not None:
                yield run_id, encoding.records_in_config(config)

    def _warn_offline(self) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "W&B is offline: only records below '%s' are shown; runs of other machines, and"
                " runs on the W&B server, are not",
                self._wandb_dir,
            )

    # -- The properties below combine this tracker's settings with W&B's own.

    @property
    def _effective_mode(self) -> str:
        if self._mode:
            return str(self._mode)
        import wandb

        return str(wandb.setup().settings.mode)

    @property
    def _is_offline(self) -> bool:
        return self._effective_mode in ("offline", "dryrun")

    @property
    def _is_disabled(self) -> bool:
        return self._effective_mode == "disabled"

    @property
    def _project_name(self) -> str:
        import wandb

        return str(self._project or wandb.setup().settings.project or _DEFAULT_PROJECT)

    @property
    def _wandb_dir(self) -> str:
        import wandb

        settings = wandb.Settings(root_dir=self._dir) if self._dir else wandb.setup().settings
        return os.path.normpath(settings.wandb_dir)


def _folder(run: wandb.Run) -> str:
    """Return the directory of a W&B run, whose subdirectory ``files`` W&B uploads."""
    return os.path.dirname(str(run.dir))


def _reference(run_id: str, record: Record) -> wandb.Artifact:
    import wandb

    artifact = wandb.Artifact(
        encoding.artifact_name(run_id, record["name"]),
        type=_ARTIFACT_TYPE,
        metadata={"torchx": encoding.display_name(run_id), **_text_metadata(record)},
    )
    path = record["path"]
    uri = path if "://" in path else Path(os.path.abspath(path)).as_uri()
    try:
        artifact.add_reference(uri, name="content", checksum=False)
    except Exception as e:  # W&B's handlers raise errors of boto3 and other libraries
        _log.info("the W&B artifact '%s' has no reference to '%s': %s", artifact.name, path, e)
    return artifact


def _text_metadata(record: Record) -> dict[str, str]:
    return {key: ascii(record[key])[1:-1] for key in ("name", "path")}


@contextmanager
def _translated_errors(what: str) -> Iterator[None]:
    """Convert errors of W&B to tracker errors.

    Args:
        what: The failing action, for the error message ("cannot ...").
    """
    try:
        yield
    except (TrackerBackendError, TrackerValueError):
        raise
    except Exception as e:
        reason = one_line(e)[:500]
        raise TrackerBackendError(f"the wandb tracker cannot {what}: {reason}") from e
