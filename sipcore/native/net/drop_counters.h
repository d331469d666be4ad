/* Drop counters: rejected messages and connections, by kind and source, in bounded memory. */
#ifndef TRUNKLINE_NET_DROP_COUNTERS_H
#define TRUNKLINE_NET_DROP_COUNTERS_H

#include <stdint.h>

#include <pjsua-lib/pjsua.h>

#define DROP_MAX_EVENTS 64      /* sources between two calls of drop_take_events */
#define DROP_HEADER_SIZE (PJ_INET6_ADDRSTRLEN + 1)
#define DROP_SAMPLE_SIZE 2048   /* bytes of a message: enough for its method and Call-ID in most */

enum drop_kind {
    DROP_UNKNOWN_SOURCE,
    DROP_UNPARSABLE,
    DROP_TOO_MANY_INVITES,
    DROP_TOO_MANY_CONNECTIONS,
    DROP_SLOW_CONNECTION,
    DROP_REFLECTED_CHALLENGE,
    DROP_MEDIA_FORBIDDEN,   /* an SDP names a forbidden address */
    DROP_MEDIA_UNLISTED,    /* an SDP names an unlisted address; nothing is rejected yet */
    DROP_KINDS
};

typedef struct drop_event {
    enum drop_kind kind;
    char source[PJ_INET6_ADDRSTRLEN];
    uint64_t count;
    char header[DROP_HEADER_SIZE];  /* header or address at fault in the first message; "": unknown */
    pj_size_t size;                 /* bytes of that message in `sample` */
    char sample[DROP_SAMPLE_SIZE];
} drop_event_t;

void drop_count(enum drop_kind kind, const char *source);
/* The same, with the header or address at fault and the message. */
void drop_count_message(enum drop_kind kind, const char *source, const pj_str_t *header, const char *data, pj_size_t size);
/* Moves the events since the last call into `out` and returns their number; `*more` counts those of further sources. */
int drop_take_events(drop_event_t *out, uint64_t *more);
/* Counts by kind since the process began: DROP_KINDS numbers. */
void drop_totals(uint64_t *totals);
const char *drop_kind_name(enum drop_kind kind);

#endif
