#!/usr/bin/env bash
# Run an MLflow tracking server with SQLite: integration/services/mlflow.sh PORT FOLDER
#
# The database and the artifacts are in FOLDER. The server runs until its process group is killed. The
# active Python environment must have requirements-trackers.txt.
set -euo pipefail
exec mlflow server --host 127.0.0.1 --port "$1" --workers 2 \
    --backend-store-uri "sqlite:///$2/mlflow.db" --artifacts-destination "$2/artifacts"
