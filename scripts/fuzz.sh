#!/bin/sh
# Coverage-guided fuzzing of the parsers: those in C with libFuzzer and PJSIP under AddressSanitizer and
# UndefinedBehaviorSanitizer, those in Python with Atheris. Inputs that break a parser are stored in build/fuzz/crashes.
# usage: fuzz.sh [NAME]...   fuzzes these parsers (default: all; `fuzz.sh list` prints their names)
#        fuzz.sh replay [NAME]...   checks every stored input once, those of the parsers in C under the sanitizers
#        fuzz.sh keep NAME   minimizes the corpus: replaces tests/fuzz/corpus/NAME by the fewest inputs with the coverage of
#                            all found ones; inputs with names of their own stay
# FUZZ_SECONDS=600           duration for each parser, s
# shellcheck source=scripts/sanitized.sh
. "$(dirname "$0")/sanitized.sh"
made=$root/build/fuzz
seconds=${FUZZ_SECONDS:-600}
longest=6000 # bytes of an input
native=$(for file in tests/fuzz/native/fuzz_*.c; do basename "$file" .c | sed 's/^fuzz_//'; done)
in_python=$("$python" -c 'from tests.fuzz.parsers import PARSERS; print(*PARSERS, sep="\n")')

install_atheris() {
    key=$(sha256sum <requirements-fuzz.lock)
    [ "$(cat "$made/site/.key" 2>/dev/null)" = "$key" ] && return
    rm -rf "$made/site"
    watched "installing Atheris" "" "" "$python" -m pip install --no-input --disable-pip-version-check --no-deps \
        --require-hashes --target "$made/site" -r requirements-fuzz.lock
    echo "$key" >"$made/site/.key"
}

compile() { # OBJECT SOURCE
    # shellcheck disable=SC2086  # one word per option
    clang $options $flags -c "$2" -o "$1"
}

# Compiles the native code that does not need Python, then links a program for each parser.
build_native() {
    scripts/build-pjsip.sh sanitize
    description=build/pjsip-sanitize/lib/pkgconfig/libpjproject.pc
    flags="-Isipcore/native $(pkg-config --cflags $description)"
    options="-g -O1 -DNDEBUG $address_options $coverage_options"
    key=$({ find sipcore/native tests/fuzz/native -type f | sort | xargs tail -n +1; readlink -f build/pjsip-sanitize; echo "$options"; } | sha256sum)
    [ "$(cat "$made/native/key" 2>/dev/null)" = "$key" ] && return
    rm -rf "$made/native"
    mkdir -p "$made/native/ours"
    sources=$(find sipcore/native -name '*.c' ! -path 'sipcore/native/python/*' | sort)
    watched "compiling the native parsers" "" "" compile_all
    watched "linking a fuzzer for each" "" "" link_all
    echo "$key" >"$made/native/key"
}

compile_all() {
    for source in $sources; do compile "$made/native/ours/$(basename "$source" .c).o" "$source" || return; done
    for source in tests/fuzz/native/*.c; do compile "$made/native/$(basename "$source" .c).o" "$source" || return; done
}

link_all() {
    for name in $native; do
        # shellcheck disable=SC2046,SC2086  # one word per option
        clang $options -fsanitize=fuzzer -o "$made/native/$name" "$made/native/fuzz_$name.o" "$made/native/stack.o" \
            "$made/native/ours/"*.o $sanitizer_link_options $(pkg-config --libs $description) -lpthread -lm \
            -Wl,-rpath,"$(pkg-config --variable=libdir $description)" || return
    done
}

is_native() { printf '%s\n' "$native" | grep -qx "$1"; }
is_known() { printf '%s\n%s\n' "$native" "$in_python" | grep -qx "$1"; }

# Runs the fuzzer of one parser with libFuzzer's options.
fuzzer() { # NAME OPTIONS...
    name=$1
    shift
    if is_native "$name"; then
        env LD_PRELOAD="$sanitizer_runtime" ASAN_OPTIONS=detect_leaks=0:strict_string_checks=1 \
            UBSAN_OPTIONS="$undefined_runtime_options" nice -n 19 "$made/native/$name" "$@"
    else
        program=$made/atheris-$name
        printf '#!/bin/sh\nexec "%s" -m tests.fuzz.run_atheris %s "$@"\n' "$python" "$name" >"$program"
        chmod +x "$program"
        env PYTHONPATH="$made/site" FUZZ_PROGRAM="$program" nice -n 19 "$program" "$@"
    fi
}

folders_of() { # NAME: the folders of the stored inputs
    for folder in "tests/fuzz/corpus/$1" "tests/fuzz/crashes/$1"; do [ ! -d "$folder" ] || echo "$folder"; done
}

explore() { # NAME
    mkdir -p "$made/corpus/$1" "$made/crashes/$1" "$made/logs"
    say "==> $1: $seconds s"
    # shellcheck disable=SC2046  # one word per folder
    if fuzzer "$1" -max_total_time="$seconds" -max_len=$longest -timeout=60 -rss_limit_mb=4096 \
        -artifact_prefix="$made/crashes/$1/" "$made/corpus/$1" $(folders_of "$1") >"$made/logs/$1.log" 2>&1; then
        say "    $(grep -a '^Done' "$made/logs/$1.log"), $(grep -aoE 'cov: [0-9]+ ft: [0-9]+' "$made/logs/$1.log" | tail -n 1)"
    else
        broken="$broken $1"
        say "    broken by an input in $made/crashes/$1; the end of $made/logs/$1.log says how"
    fi
}

replay() { # NAME
    inputs=$(for folder in $(folders_of "$1"); do find "$folder" -type f; done | sort)
    # shellcheck disable=SC2086  # one word per file
    if fuzzer "$1" $inputs >"$log.replay" 2>&1; then
        say "    $1: $(printf '%s\n' "$inputs" | wc -l) inputs"
    else
        broken="$broken $1"
        tail -n 30 "$log.replay"
    fi
}

keep() { # NAME
    rm -rf "$made/fewest" && mkdir -p "$made/fewest" "$made/corpus/$1"
    # shellcheck disable=SC2046  # one word per folder
    fuzzer "$1" -merge=1 -use_counters=0 -artifact_prefix="$made/" -max_len=$longest "$made/fewest" "$made/corpus/$1" $(folders_of "$1") >"$log.merge" 2>&1
    [ -n "$(ls "$made/fewest")" ] || { tail -n 30 "$log.merge"; fail "failed: merging the inputs of $1" "$remedy"; }
    # An input with a name tests a rule, whether or not it adds coverage.
    find "tests/fuzz/corpus/$1" -type f 2>/dev/null | grep -vE '/[0-9a-f]{40}$' | xargs -r cp -t "$made/fewest"
    rm -rf "tests/fuzz/corpus/$1"
    mv "$made/fewest" "tests/fuzz/corpus/$1"
    say "    tests/fuzz/corpus/$1: $(find "tests/fuzz/corpus/$1" -type f | wc -l) inputs"
}

start_log fuzz
broken=
action=explore
# shellcheck disable=SC2086  # one word per name
case ${1:-} in
    list) printf '%s\n' $native $in_python; exit ;;
    replay | keep) action=$1; shift ;;
esac
# shellcheck disable=SC2086  # one word per name
[ $# -gt 0 ] || set -- $native $in_python
# shellcheck disable=SC2086  # one word per name
for name in "$@"; do is_known "$name" || fail "there is no parser named $name" "one of: $(printf '%s ' $native $in_python)"; done
install_atheris
build_native
for name in "$@"; do "$action" "$name"; done
[ -z "$broken" ] || fail "inputs break:$broken" "fix what they show, and keep each in tests/fuzz/crashes/NAME: make test reads it from then on"
