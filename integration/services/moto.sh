#!/usr/bin/env bash
# An AWS endpoint on this machine, in memory: integration/services/moto.sh PORT
#
# Runs until it is killed; needs requirements-trackers.txt in the environment that is active.
set -euo pipefail
# A page of a bucket's listing has 1,000 keys in AWS: with fewer, less has to be made to see two.
export MOTO_S3_DEFAULT_MAX_KEYS=100
exec moto_server -H 127.0.0.1 -p "$1"
