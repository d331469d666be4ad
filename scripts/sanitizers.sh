# shellcheck shell=sh disable=SC2034  # read by those that source it
# Sourced by what builds or runs with sanitizers.

sanitizer_runtimes=$(clang -print-runtime-dir)
# Address and undefined behaviour; not `vptr`, which needs the C++ runtime of the sanitizers in every library.
sanitizer_options="-fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize=vptr -shared-libsan"
sanitizer_link_options="-fsanitize=address,undefined -shared-libsan -Wl,-rpath,$sanitizer_runtimes"
# Python is not built with them: what it is started with must load this before all else.
sanitizer_runtime=$sanitizer_runtimes/libclang_rt.asan-$(uname -m).so
# Races of threads, by gcc: clang 14's runtime ends a program that is not built with it.
thread_options="-fno-omit-frame-pointer -fsanitize=thread"
thread_runtime=$(gcc -print-file-name=libtsan.so)
# What libFuzzer is guided by.
coverage_options="-fsanitize-coverage=inline-8bit-counters,pc-table,trace-cmp"
