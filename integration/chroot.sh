#!/usr/bin/env bash
# Make a folder with another Debian release in it, as root: integration/chroot.sh RELEASE FOLDER PACKAGE ...
#
# Tests start newer versions of services in it (`chroot FOLDER COMMAND`). The packages are installed
# without the ones that they recommend, and no service is started. A second run with the same
# release and packages changes nothing. The release is trixie or sid.
set -euo pipefail

if [ "$#" -lt 3 ]; then
    echo "usage: integration/chroot.sh RELEASE FOLDER PACKAGE ..." >&2
    exit 2
fi
release=$1
folder=$2
shift 2
done_file=$folder/.packages
# Without this file, a service that looks up the name of a client on this machine asks the name server,
# and waits 5 s for each answer that gets lost; slurmctld looks up the name of every client.
write_hosts() {
    printf '127.0.0.1 localhost %s\n' "$(uname -n)" >"$folder/etc/hosts"
}
if [ "$(cat "$done_file" 2>/dev/null)" = "$release $*" ]; then
    write_hosts
    exit
fi
if ! command -v debootstrap >/dev/null; then
    echo "chroot: debootstrap is missing; run integration/install.sh first" >&2
    exit 1
fi
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -n 1)
# A run that was killed may have left mounts, whose files are those of this machine.
awk -v folder="$folder/" 'index($5, folder) == 1 { print $5 }' /proc/self/mountinfo | sort -r |
    xargs -r -n 1 umount
rm -rf --one-file-system "$folder"
mkdir -p "$folder"
debootstrap --variant=minbase "$release" "$folder" "$mirror" >"$folder.log" 2>&1 || {
    tail -n 5 "$folder.log" >&2
    exit 1
}
# Without this file, packages start their services.
printf '#!/bin/sh\nexit 101\n' >"$folder/usr/sbin/policy-rc.d"
chmod 755 "$folder/usr/sbin/policy-rc.d"
DEBIAN_FRONTEND=noninteractive chroot "$folder" apt-get -qq install -y --no-install-recommends "$@" \
    >>"$folder.log" 2>&1 || {
    tail -n 5 "$folder.log" >&2
    exit 1
}
chroot "$folder" apt-get clean
write_hosts
echo "$release $*" >"$done_file"
