"""Measure how long `local_cwd` takes from a replica's death to the start of the next attempt.

The other replica runs, and is ended first. The start of the program itself does not count.
"""

from __future__ import annotations

from pathlib import Path

from torchx_runner import get_runner
from torchx_specs import AppDef, AppState, Role

SCRIPT = """
if [ "$TORCHX_ATTEMPT" = 1 ]; then date +%s.%N > "began-$TORCHX_REPLICA_ID"; exit 0; fi
[ "$TORCHX_REPLICA_ID" = 0 ] || exec sleep 1000
sleep 0.2
date +%s.%N > died
kill -KILL $$
"""

if __name__ == "__main__":
    role = Role("main", "", entrypoint="sh", args=["-c", SCRIPT], num_replicas=2, max_retries=1)
    with get_runner() as runner:
        handle = runner.run(AppDef("app", [role]), "local_cwd", {"resume_dir": "resume"})
        status = runner.wait(handle, 0.1)
    assert status is not None
    assert status.state == AppState.SUCCEEDED
    began = max(float(Path(f"began-{k}").read_text()) for k in range(2))
    print({"seconds": began - float(Path("died").read_text())})
