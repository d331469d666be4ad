# shellcheck shell=sh
# Progress and error messages; sourced by the setup scripts.

say() { printf '%s\n' "$*"; }

fail() { # MESSAGE REMEDY
    printf '\nerror: %s\n  what to do: %s\n' "$1" "$2" >&2
    exit 1
}

start_log() { # NAME: sets the log file of the watched commands that follow
    log=${XDG_CACHE_HOME:-$HOME/.cache}/trunkline/logs/$1.log
    mkdir -p "$(dirname "$log")"
    : >"$log"
}

# Runs a command with its output in $log. Prints every five seconds the number of output lines that match PATTERN (of
# TOTAL, if known), or only the time if PATTERN is empty.
# On failure it prints the last lines, the log's path and $remedy, and ends the script.
watched() { # TITLE PATTERN TOTAL COMMAND...
    title=$1 pattern=$2 total=$3
    shift 3
    say "    $title"
    printf '\n### %s\n' "$title" >>"$log"
    report_progress "$title" "$pattern" "$total" "$(wc -l <"$log")" &
    reporter=$!
    status=0
    "$@" >>"$log" 2>&1 || status=$?
    kill "$reporter" 2>/dev/null || true
    wait "$reporter" 2>/dev/null || true
    [ "$status" -ne 0 ] || return 0
    printf '\n--- the last lines of %s\n' "$log" >&2
    tail -n 15 "$log" >&2
    fail "failed: $title" "${remedy:-read $log, then run the same command again}"
}

# Ends with its parent process, so that an interrupted script leaves no process.
report_progress() { # TITLE PATTERN TOTAL LINES_BEFORE
    seconds=0
    while sleep 1 && kill -0 $$ 2>/dev/null; do
        seconds=$((seconds + 1))
        [ $((seconds % 5)) -eq 0 ] || continue
        done_so_far=
        [ -z "$2" ] || done_so_far=" $(tail -n "+$(($4 + 1))" "$log" | grep -cE -- "$2" || true)${3:+ of about $3},"
        say "    $1:$done_so_far ${seconds} s"
    done
}
