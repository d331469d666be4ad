/* SIP messages, whole or broken, through the guard: the first byte is the source and the transport, the rest the packet. */
#include "stack.h"

#include "guard/guard.h"

#define MAX_BYTES_SENT 8000

enum { OVER_STREAM = 1, ACCEPTING = 8, REFUSING = 16 };

enum sender { KNOWN, UNKNOWN, PROBE, PEER };

static const char *const sources[] = {KNOWN_ADDRESS, UNKNOWN_ADDRESS, PROBE_ADDRESS, PEER_ADDRESS};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    stack_start();
    const uint8_t flags = data[0];
    const enum sender from = flags >> 1 & 3;
    guard_set_policy(flags & REFUSING, flags & ACCEPTING, 10);
    const seen_t seen = stack_receive(data + 1, size - 1, sources[from], flags & OVER_STREAM);
    if (!(flags & OVER_STREAM)) {
        must(seen.sent <= 1, "a datagram has at most one response");
        must(seen.admitted + seen.sent <= 1, "a message is either answered or admitted");
    }
    must(!seen.admitted || from == KNOWN || from == PEER, "messages of other sources are rejected");
    must(seen.longest_sent <= MAX_BYTES_SENT, "a response is bounded");
    return 0;
}
