#!/usr/bin/env bash
# Run an MLflow tracking server on SQLite: integration/services/mlflow.sh PORT FOLDER
#
# Database and artifacts are in FOLDER. The server starts processes of its own: end the process group.
# The active environment needs requirements-trackers.txt.
set -euo pipefail
exec mlflow server --host 127.0.0.1 --port "$1" --workers 2 \
    --backend-store-uri "sqlite:///$2/mlflow.db" --artifacts-destination "$2/artifacts"
