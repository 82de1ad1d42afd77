#!/usr/bin/env bash
# Installs what the integration tests need from Debian, as root: integration/install.sh [SERVICE ...]
#
# One function per service, which says what that service needs; without arguments, all of them.
# Safe to run again: packages that are there are left alone, and then no index is fetched either.
# Starting a service is the business of its tests (a fixture in integration/SERVICE/conftest.py).
set -euo pipefail

SERVICES=(local slurm docker registry aws)

packages=()

# What the tests on this machine itself need: a Python that can make virtual environments. Any on
# PATH will do.
local_() {
    local python
    for python in python3 python3.13 python3.12 python3.11 python3.10; do
        if "$python" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            return
        fi
    done
    packages+=(python3 python3-venv)
}

# A cluster, and slurmdbd with its database for the one with accounting.
slurm_() {
    packages+=(munge slurm-client slurmctld slurmd slurmdbd slurm-wlm-mysql-plugin mariadb-server)
}

# The Docker Engine; busybox is what its small image is made of, python3 the other one's.
docker_() {
    packages+=(docker.io iptables busybox-static python3)
}

# A container registry, and an engine to run what was pushed to it; a clock that is wrong.
registry_() {
    docker_
    packages+=(docker-registry faketime)
}

# moto comes from PyPI; the jobs of its Batch run in containers, of images of a registry, too.
aws_() {
    registry_
}

install_packages() {
    local missing=() package
    for package in "$@"; do
        if [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
            missing+=("$package")
        fi
    done
    if [ "${#missing[@]}" -eq 0 ]; then
        echo "install: nothing to install"
        return
    fi
    if [ "$(id -u)" -ne 0 ]; then
        echo "install: root is needed to install: ${missing[*]}" >&2
        exit 1
    fi
    echo "install: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update
    # Services are started by the tests, with their own configuration, and not by dpkg.
    RUNLEVEL=1 apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
}

if [ "$#" -eq 0 ]; then
    set -- "${SERVICES[@]}"
fi
for service in "$@"; do
    if ! declare -F "${service}_" >/dev/null; then
        echo "install: no service named '$service'; there are: ${SERVICES[*]}" >&2
        exit 2
    fi
    "${service}_"
done
install_packages ${packages[@]+"${packages[@]}"}
