#!/usr/bin/env bash
# Install the Debian packages of the integration tests, as root: integration/install.sh [SERVICE ...]
#
# Without arguments, installs the packages of all services. One function for each service lists its
# packages. A second run changes nothing: if no package is missing, it does not fetch apt's index.
# The tests start the services (a fixture in integration/SERVICE/conftest.py).
set -euo pipefail

SERVICES=(local slurm sge ssh htcondor docker registry aws docs terminal dashboard)

packages=()

# A Python on PATH that can create virtual environments; the package is installed only if none can.
local_() {
    local python
    for python in python3 python3.13 python3.12 python3.11 python3.10; do
        if "$python" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            return
        fi
    done
    packages+=(python3 python3-venv)
}

# slurmdbd and MariaDB are for the cluster with accounting; debootstrap is for integration/chroot.sh.
slurm_() {
    packages+=(debootstrap munge slurm-client slurmctld slurmd slurmdbd slurm-wlm-mysql-plugin mariadb-server)
}

# The hosts of the cluster are namespaces, which iproute2 connects.
sge_() {
    packages+=(gridengine-master gridengine-exec gridengine-client iproute2)
}

# The accounts of the tests have these shells; slurm_ installs the cluster behind one machine.
ssh_() {
    slurm_
    packages+=(openssh-client openssh-server bash zsh fish tcsh)
}

# Debian bookworm has no HTCondor; debootstrap is for integration/chroot.sh, which installs trixie's.
htcondor_() {
    packages+=(debootstrap)
}

# The test images are built from busybox and python3; debootstrap is for integration/chroot.sh.
docker_() {
    packages+=(debootstrap docker.io iptables busybox-static python3)
}

# The engine runs pushed images; faketime starts a client with a wrong clock.
registry_() {
    docker_
    packages+=(docker-registry faketime)
}

# moto is on PyPI. It runs Batch jobs in containers, some of them from images in a registry.
aws_() {
    registry_
}

# The pages of the documentation are opened in a browser (nox -s docs).
docs_() {
    packages+=(chromium)
}

# The pages of the dashboard are opened in a browser.
dashboard_() {
    docs_
}

# Completion is tested in each shell.
terminal_() {
    packages+=(bash zsh fish)
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
        echo "install: run as root to install: ${missing[*]}" >&2
        exit 1
    fi
    echo "install: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update
    # RUNLEVEL=1 keeps dpkg from starting services: the tests start them with other configurations.
    RUNLEVEL=1 apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
}

if [ "$#" -eq 0 ]; then
    set -- "${SERVICES[@]}"
fi
for service in "$@"; do
    if ! declare -F "${service}_" >/dev/null; then
        echo "install: unknown service '$service'; choose from: ${SERVICES[*]}" >&2
        exit 2
    fi
    "${service}_"
done
install_packages ${packages[@]+"${packages[@]}"}
