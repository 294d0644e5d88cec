#!/usr/bin/env bash
# What `make foreign` does: one part after the other, and one line for the whole. PARTS are
#
#   programs   the list `programs`, natively, bare and protected       (half an hour on two processors)
#   kills      the same programs and those of `busy`, with their primaries killed   (a quarter of an hour, and half an hour)
#   suites     test suites that Debian packages, case by case          (half an hour)
#   units      Debian's own systemd units, in a container (as root)    (half a minute)
#   long       programs that run for LONG_SECONDS each                 (LONG_SECONDS=600: an hour)
#   roots      `programs`, and all guests protected and killed, in the root file systems ROOTS, made by rootfs.sh with gcc and g++ (as root)
set -uo pipefail
cd "$(dirname "$0")/../.."
: "${TARGET:=target}" "${JOBS:=1}" "${FOREIGN_SECONDS:=60}" "${ONLY:=}" "${SETUP:=}" "${PARTS:=programs}" "${ROOTS:=}"
kit=$TARGET/release/kit
if [[ -n $SETUP ]]; then tests/foreign/setup.sh || exit 1; fi
only=()
if [[ -n $ONLY ]]; then only=(--only "$ONLY"); fi

# lists FILE: whether a program there is asked for.
lists() { grep -v '^#' "$1" | cut -d'|' -f1 | grep -q -- "$ONLY"; }

bad=()
for part in $PARTS; do
    echo "=== $part"
    case $part in
        programs) "$kit" foreign --jobs "$JOBS" --timeout "$FOREIGN_SECONDS" "${only[@]}" ;;
        kills)
            worse=
            ! lists tests/foreign/programs ||
                "$kit" foreign --kills 3 --jobs "$JOBS" --timeout "$FOREIGN_SECONDS" "${only[@]}" || worse=yes
            # Alone: they are busy on all processors.
            if command -v go >/dev/null; then
                mkdir -p "$TARGET/foreign"
                BUILT=$(realpath "$TARGET/foreign")
                export BUILT
                (cd tests/foreign/go && GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local CGO_ENABLED=1 go build -o "$BUILT/web" ./web) || worse=yes
            fi
            ! lists tests/foreign/busy ||
                "$kit" foreign --list tests/foreign/busy --kills "${KILLS:-20}" --timeout $((FOREIGN_SECONDS * 4)) "${only[@]}" || worse=yes
            [[ -z $worse ]]
            ;;
        suites) "$kit" foreign --suites --list tests/foreign/suites --timeout $((FOREIGN_SECONDS * 4)) "${only[@]}" ;;
        units) tests/foreign/units.sh ;;
        long) tests/foreign/long.sh ;;
        roots)
            worse=
            for root in ${ROOTS:?which folders?}; do
                "$kit" foreign --inside "$root" --understudy /understudy/understudy --timeout "$FOREIGN_SECONDS" "${only[@]}" || worse=yes
                for mode in protected kill; do
                    BUILT=$TARGET/release tests/foreign/rootfs.sh --enter "$root" /understudy/kit guests --root /tree --mode "$mode" \
                        --understudy /understudy/understudy --target /tmp/guests --jobs "$JOBS" "${only[@]}" || worse=yes
                done
            done
            [[ -z $worse ]]
            ;;
        *) echo "foreign: no part is called $part" && false ;;
    esac || bad+=("$part")
done
((${#bad[@]} == 0)) || echo "foreign: failed: ${bad[*]}"
((${#bad[@]} == 0))
