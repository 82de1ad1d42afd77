#!/usr/bin/env bash
# Run an MLflow tracking server with SQLite: integration/services/mlflow.sh PORT DIRECTORY
#
# Database and artifacts are in DIRECTORY. The active environment needs requirements-trackers.txt.
# Stop the server and its child processes with a signal.
set -euo pipefail
# The runners of background jobs are ten more processes, which no test needs.
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false
# Each worker imports MLflow, which takes seconds of a processor.
exec mlflow server --host 127.0.0.1 --port "$1" --workers 1 \
    --backend-store-uri "sqlite:///$2/mlflow.db" --artifacts-destination "$2/artifacts"
