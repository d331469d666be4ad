# shellcheck shell=sh disable=SC2034  # used by the scripts that source it
# Compiler options and runtimes of the sanitizers; sourced by the scripts that build or run with them.

sanitizer_runtimes=$(clang -print-runtime-dir)
# Addresses and undefined behaviour, without `vptr`, which needs the C++ runtime of the sanitizers in every library.
sanitizer_options="-fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize=vptr -shared-libsan"
sanitizer_link_options="-fsanitize=address,undefined -shared-libsan -Wl,-rpath,$sanitizer_runtimes"
# Python is not built with sanitizers, so that this runtime must be preloaded.
sanitizer_runtime=$sanitizer_runtimes/libclang_rt.asan-$(uname -m).so
# Data races, with gcc, because clang 14's runtime ends a program that is not built with it.
thread_options="-fno-omit-frame-pointer -fsanitize=thread"
thread_runtime=$(gcc -print-file-name=libtsan.so)
# Coverage for libFuzzer.
coverage_options="-fsanitize-coverage=inline-8bit-counters,pc-table,trace-cmp"
