#!/usr/bin/env bash
# Run an AWS endpoint in memory: integration/services/moto.sh PORT
#
# The active environment needs requirements-trackers.txt.
set -euo pipefail
# A page of a bucket's listing has 1,000 keys in AWS. Smaller pages let tests see two pages sooner.
export MOTO_S3_DEFAULT_MAX_KEYS=100
exec moto_server -H 127.0.0.1 -p "$1"
