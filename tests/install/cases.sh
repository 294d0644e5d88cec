# Cases of a test, counted and summed up; sourced. `work` is a folder, and `where`, if set, stands before each name.
passed=0 failed=0 skipped=0
# What is installed is tried: what names files of this tree would be in the way.
unset UNDERSTUDY UNDERSTUDY_LIB UNDERSTUDY_FAULTY UNDERSTUDY_DIR NOTIFY_SOCKET

# sum_up: the last line. Fails if a case has failed.
sum_up() {
    echo "$passed passed, $failed failed, $skipped skipped"
    ((failed == 0))
}

# try NAME COMMAND...: one case; what it says is shown when it fails.
try() {
    local name=${where:+$where: }$1 begun=$SECONDS
    shift
    if "$@" >"$work/said" 2>&1; then
        ((passed += 1))
        echo "pass  $name ($((SECONDS - begun)) s)"
    else
        ((failed += 1))
        echo "FAIL  $name"
        sed 's/^/      /' "$work/said"
    fi
}

# skip NAME WHY
skip() {
    ((skipped += 1))
    echo "skip  ${where:+$where: }$1: $2"
}

# wait_for COMMAND...: until it succeeds, half a minute at most.
wait_for() {
    local left
    for ((left = 300; left > 0; left--)); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    echo "waited in vain for: $*"
    return 1
}
