#!/usr/bin/env bash
# An MLflow tracking server on SQLite: integration/services/mlflow.sh PORT FOLDER
#
# Keeps database and artifacts in FOLDER and runs until it is killed, with the processes it starts;
# needs requirements-trackers.txt in the environment that is active.
set -euo pipefail
exec mlflow server --host 127.0.0.1 --port "$1" --workers 2 \
    --backend-store-uri "sqlite:///$2/mlflow.db" --artifacts-destination "$2/artifacts"
