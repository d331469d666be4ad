/* What was turned away, by kind and source: counted, and remembered between two looks in bounded memory. */
#ifndef TRUNKLINE_NET_DROP_COUNTERS_H
#define TRUNKLINE_NET_DROP_COUNTERS_H

#include <stdint.h>

#include <pjsua-lib/pjsua.h>

#define DROP_MAX_EVENTS 64      /* sources remembered between two looks: bounded, whatever the flood */
#define DROP_HEADER_SIZE (PJ_INET6_ADDRSTRLEN + 1)
#define DROP_SAMPLE_SIZE 2048    /* bytes of a message: its method and Call-ID are mostly among them */

enum drop_kind {
    DROP_UNKNOWN_SOURCE,
    DROP_UNPARSABLE,
    DROP_TOO_MANY_INVITES,
    DROP_TOO_MANY_CONNECTIONS,
    DROP_SLOW_CONNECTION,
    DROP_REFLECTED_CHALLENGE,
    DROP_MEDIA_FORBIDDEN,     /* an SDP names what no host has */
    DROP_MEDIA_UNLISTED,   /* one names an address that is waited for (`rtp/media_address_policy.h`); nothing is turned away yet */
    DROP_KINDS
};

typedef struct drop_event {
    enum drop_kind kind;
    char source[PJ_INET6_ADDRSTRLEN];
    uint64_t count;
    char header[DROP_HEADER_SIZE];   /* of the first message that was told of: what could not be read, or may not be; "": not known */
    pj_size_t size;             /* and how it began */
    char sample[DROP_SAMPLE_SIZE];
} drop_event_t;

void drop_count(enum drop_kind kind, const char *source);
/* The same with what an operator looks for. */
void drop_count_message(enum drop_kind kind, const char *source, const pj_str_t *header, const char *data, pj_size_t size);
/* Hand out and forget what happened since the last look; returns how many, `*more` counts what came of unlisted sources. */
int drop_take_events(drop_event_t *out, uint64_t *more);
/* How often each kind happened since the process began: DROP_KINDS numbers. */
void drop_totals(uint64_t *totals);
const char *drop_kind_name(enum drop_kind kind);

#endif
