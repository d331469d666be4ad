#!/bin/sh
# Runs the SIP and RTP tests and mutated messages under sanitizers: first PJSIP and the native code with AddressSanitizer and
# UndefinedBehaviorSanitizer, then the native code with ThreadSanitizer. Every report that tests/sanitize/*.supp does not
# suppress is a failure. Failed tests are printed but do not fail the run, because timeouts are expected at this speed;
# `make test` runs them, too.
# usage: sanitize.sh [address | thread]...
# MESSAGES=20000   number of mutated messages
# TESTS="files"    tests to run (default: all of tests/sipcore; for threads those of the pump, RTP, guard, tap and TLS)
# shellcheck source=scripts/sanitized.sh
. "$(dirname "$0")/sanitized.sh"
suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
status=0

# Builds the extension next to the installed one, once for each content of the sources.
build_extension() { # KIND COMPILER PJSIP OPTIONS LINK_OPTIONS
    folder=$root/build/sanitize/$1
    key=$({ find setup.py sipcore/native -type f | sort | xargs tail -n +1; readlink -f "$3"; echo "$2 $4"; } | sha256sum)
    [ "$(cat "$folder/key" 2>/dev/null)" = "$key" ] && return
    mkdir -p "$folder"
    watched "compiling the extension ($1)" "" "" env CC="$2" CXX="$2" LDSHARED="$2 -shared" \
        LDCXXSHARED="$2 -shared" CFLAGS="-g $4" LDFLAGS="$5" PJSIP_PREFIX="$3" \
        "$python" setup.py -q build_ext --force --parallel 2 --build-lib "$folder" --build-temp "$folder/objects"
    echo "$key" >"$folder/key"
}

# Runs a command with a sanitizer and its PJSIP; the sanitizer writes its reports to files.
with_sanitizer() { # KIND RUNTIME PJSIP COMMAND...
    kind=$1 runtime=$2 pjsip=$3
    shift 3
    reports=$root/build/sanitize/$kind/report
    supp=$root/tests/sanitize
    env LD_PRELOAD="$runtime" NATIVE_EXTENSION="$root/build/sanitize/$kind/sipcore/_native$suffix" \
        PYTHONPATH="$supp:$pjsip/python" \
        ASAN_OPTIONS="detect_leaks=0:verify_asan_link_order=0:strict_string_checks=1:log_path=$reports" \
        UBSAN_OPTIONS="$undefined_runtime_options:log_path=$reports" \
        TSAN_OPTIONS="ignore_noninstrumented_modules=1:history_size=4:log_path=$reports:suppressions=$supp/thread.supp" \
        nice "$@"
}

# The installed extension has no sanitizer.
check_extension() { # KIND RUNTIME PJSIP
    used=$(with_sanitizer "$1" "$2" "$3" "$python" -c 'from sipcore import _native; print(_native.__file__)') || used="none"
    [ "$used" = "$root/build/sanitize/$1/sipcore/_native$suffix" ] || fail "Python uses another extension: $used" "$remedy"
}

run_tests() { # KIND RUNTIME PJSIP FILES
    check_extension "$1" "$2" "$3"
    say "==> $1: tests"
    # shellcheck disable=SC2086  # one word per file
    with_sanitizer "$1" "$2" "$3" "$python" -m pytest -q -p no:cacheprovider --timeout 600 --reruns 2 $4 || ended=$?
    # 1: tests failed. Other statuses except 0 are those of a crash.
    [ "${ended:-0}" -le 1 ] || { say "    pytest ended with $ended"; status=1; }
    unset ended
}

run_messages() { # KIND RUNTIME PJSIP
    say "==> $1: ${MESSAGES:-20000} mutated messages"
    with_sanitizer "$1" "$2" "$3" "$python" -m tests.sanitize.mutated_messages "${MESSAGES:-20000}" || status=1
}

print_reports() { # KIND
    found=$(grep -lE 'ERROR: |WARNING: |runtime error:' "$root/build/sanitize/$1"/report.* 2>/dev/null || true)
    [ -n "$found" ] || { say "    $1: no reports"; return; }
    status=1
    say "    $1: reports, in full in"
    say "$found"
    # shellcheck disable=SC2086  # one word per file
    grep -hE '^SUMMARY|runtime error:' $found | sort | uniq -c | sort -rn
}

address() {
    scripts/build-pjsip.sh sanitize
    build_extension address clang build/pjsip-sanitize "$address_options" "$sanitizer_link_options"
    rm -f build/sanitize/address/report.*
    run_tests address "$sanitizer_runtime" "$root/build/pjsip-sanitize" "${TESTS:-tests/sipcore}"
    run_messages address "$sanitizer_runtime" "$root/build/pjsip-sanitize"
    print_reports address
}

# PJSIP is not instrumented: its locks are seen all the same, and its unlocked accesses are not checked.
thread() {
    build_extension thread gcc build/pjsip "$thread_options" "$thread_options"
    rm -f build/sanitize/thread/report.*
    usual=$(for part in audio/test_pump audio/test_pcm_channel audio/test_bridge audio/test_bridge_threads audio/test_bridge_races trace/test_message_tap audio/test_background audio/test_dtmf rtp/test_rtp_attacks \
        rtp/test_source_moves rtp/test_closed_ports rtp/test_port_pool audio/test_media_quality rtp/test_media_packets \
        security/test_connection_limit security/test_guard_limits resolver/test_host_table dialogs/test_replaces \
        dialogs/test_call_table rtp/test_srtp transport/test_tls test_endpoint; do echo "tests/sipcore/$part.py"; done)
    run_tests thread "$thread_runtime" "$root/build/pjsip" "${TESTS:-$usual}"
    run_messages thread "$thread_runtime" "$root/build/pjsip"
    print_reports thread
}

start_log sanitize
[ $# -gt 0 ] || set -- address thread
for kind in "$@"; do "$kind"; done
[ "$status" -eq 0 ] || fail "sanitizers reported something" "read the reports, fix their causes, or suppress them with a reason in tests/sanitize/*.supp"
say "    no reports of the sanitizers"
