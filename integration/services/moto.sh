#!/usr/bin/env bash
# Run an AWS endpoint in memory: integration/services/moto.sh PORT
#
# The active environment needs requirements-trackers.txt. Stop it with a signal.
set -euo pipefail
# AWS returns 1,000 keys per page of a bucket's listing. With 100, tests need fewer keys for two pages.
export MOTO_S3_DEFAULT_MAX_KEYS=100
exec moto_server -H 127.0.0.1 -p "$1"
