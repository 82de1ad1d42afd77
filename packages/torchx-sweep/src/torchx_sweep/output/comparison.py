"""The elements of a sweep as apps that ``torchx compare`` shows."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone

from torchx_cli.commands.submissions.compare import Subject
from torchx_runner.submissions.journal import Submission, find_submission
from torchx_sweep.drivers.process import ensure_driver
from torchx_sweep.handles import find_sweep
from torchx_sweep.output.tables import element_duration
from torchx_sweep.store import Store

logger = logging.getLogger(__name__)


def element_subjects(handle: str) -> list[Subject]:
    """Return the submitted elements of a sweep; the others are left out with a line.

    Args:
        handle: The sweep's handle.

    Raises:
        UnknownAppException: The sweep does not exist.
    """
    with Store() as store:
        record = find_sweep(store, handle)
        ensure_driver(store, record.id)
        elements = store.apps(record.id)
    entry = find_submission(handle)
    shared = entry.arguments if entry else ()
    subjects = []
    for element, app in elements:
        if not element.handle:
            continue
        submission = Submission(
            element.handle,
            element.submission,
            datetime.fromtimestamp(element.submitted or record.created, timezone.utc),
            cfg=record.cfg,
            app=json.loads(app),
            component=record.component,
            arguments=tuple(shared),
        )
        outcome = (element.state.value, element_duration(element))
        subjects.append(Subject(element.handle, submission, element.parameters, outcome))
    if missing := len(elements) - len(subjects):
        logger.info("%s: %d elements are not submitted yet", handle, missing)
    return subjects
