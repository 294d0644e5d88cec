# Sourced by units.sh and long.sh: one line for each thing that was tried, against the table `expected`, and the sum of them.
passed=0 failed=0 skipped=0

# verdict NAME WAY WORDS RIGHT: RIGHT is empty where it was not as it must be. NAME is the table's, WAY is native, bare or protected.
verdict() {
    local known=
    [[ $2 == native ]] || known=$(grep "^$1 | \($2\|both\)" "$top/tests/foreign/expected")
    if [[ -n $4 && -n $known && $known != *" sometimes |"* ]]; then
        echo "FAIL  $1 $2 no longer differs: take it out of the table"
        ((failed += 1))
    elif [[ -n $4 ]]; then
        echo "pass  $1 $2: $3"
        ((passed += 1))
    elif [[ -n $known ]]; then
        echo "known $1 $2: $3; ${known##*| }"
    else
        echo "FAIL  $1 $2: $3"
        ((failed += 1))
    fi
}
skip() {
    echo "skip  $1: $2"
    ((skipped += 1))
}
# The last line, and the script's status.
sum_up() {
    echo "$passed passed, $failed failed, $skipped skipped"
    ((failed == 0))
}
