#!/usr/bin/env bash
# Run an AWS endpoint on this machine, in memory: integration/services/moto.sh PORT
#
# The server runs until it is killed. The active Python environment must have requirements-trackers.txt.
set -euo pipefail
# A page of AWS's listings has 1,000 keys. With smaller pages, a test needs fewer keys for two pages.
export MOTO_S3_DEFAULT_MAX_KEYS=100
exec moto_server -H 127.0.0.1 -p "$1"
