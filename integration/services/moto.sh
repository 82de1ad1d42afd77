#!/usr/bin/env bash
# An AWS endpoint on this machine, in memory: integration/services/moto.sh PORT
#
# Runs until it is killed; needs requirements-trackers.txt in the environment that is active.
set -euo pipefail
exec moto_server -H 127.0.0.1 -p "$1"
