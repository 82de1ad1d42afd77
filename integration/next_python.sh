#!/usr/bin/env bash
# Run the unit tests on the Python of Debian sid, as root: integration/next_python.sh [PYTEST ARGUMENTS]
#
# The tests run in a chroot in which this checkout, /tmp and the certificates of this machine have the
# same paths. The mounts end with this script.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1-}" != --mounted ]; then
    exec unshare --mount "$0" --mounted "$@"
fi
shift
folder=/var/tmp/torchx-chroots/sid-python
integration/chroot.sh sid "$folder" python3 python3-venv python3-dev gcc libc6-dev procps git
uv=$(realpath .venv/bin/uv)
for path in "$PWD" "${UV_CACHE_DIR:-$HOME/.cache/uv}" /tmp /proc /dev /sys /etc/ssl/certs /usr/share/ca-certificates \
    /usr/local/share/ca-certificates; do
    if [ -d "$path" ]; then
        mkdir -p "$folder$path"
        mount --rbind "$path" "$folder$path"
    fi
done
cp /etc/resolv.conf "$folder/etc/"
exec chroot "$folder" bash -euc '
    cd "$1"; uv=$2; shift 2
    "$uv" venv -q --clear -p python3 .nox/next-python
    "$uv" pip install -q -p .nox/next-python/bin/python $(printf -- "-e %s " packages/*) --group test pip
    exec .nox/next-python/bin/python -m pytest "$@"' - "$PWD" "$uv" "$@"
