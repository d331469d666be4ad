/* Whole messages, or what looks like one, through the guard: the first byte says from whom, and over what, they come; the
 * rest is the packet. */
#include "stack.h"

#include "../../../sipcore/native/guard.h"

#define MOST_BYTES_SENT 8000

enum { OVER_STREAM = 1, FROM_STRANGER = 2, FROM_PROBE = 4, ACCEPTING = 8, REFUSING = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    stack_start();
    const uint8_t how = data[0];
    const char *source = how & FROM_STRANGER ? STRANGE_ADDRESS : how & FROM_PROBE ? PROBE_ADDRESS : KNOWN_ADDRESS;
    guard_set_answers(how & REFUSING, how & ACCEPTING, 10);
    const seen_t seen = stack_receive(data + 1, size - 1, source, how & OVER_STREAM);
    if (!(how & OVER_STREAM)) {
        must(seen.sent <= 1, "a datagram has one answer at most");
        must(seen.let_in + seen.sent <= 1, "what is answered goes no further");
    }
    must(seen.longest_sent <= MOST_BYTES_SENT, "an answer is bounded");
    return 0;
}
