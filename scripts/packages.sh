# Sourced by what installs Debian packages: install_packages PACKAGE... starts no server of the system's, and needs root.
#
# The server packages would start a redis and a memcached of the system on their usual ports. invoke-rc.d asks policy-rc.d first,
# and 101 means no. Services that run already are not touched. A policy of the machine's owner is put back.

install_packages() {
    local policy=/usr/sbin/policy-rc.d
    (
        saved=
        restore() {
            rm -f "$policy"
            if [[ -n $saved ]]; then mv "$saved" "$policy"; fi
        }
        if [[ -e $policy || -L $policy ]]; then
            saved=$policy.before-understudy
            mv "$policy" "$saved"
        fi
        trap restore EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        export DEBIAN_FRONTEND=noninteractive
        get=(apt-get -o DPkg::Lock::Timeout=600 -q)
        # The lists may be absent (a fresh image) or too old for the mirror: one update, then one more try.
        "${get[@]}" -y install --no-install-recommends "$@" >/dev/null 2>&1 || {
            "${get[@]}" update && "${get[@]}" -y install --no-install-recommends "$@"
        }
    )
}
