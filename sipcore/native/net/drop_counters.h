/* What was turned away, by kind and source: counted, and remembered between two looks in bounded memory. */
#ifndef TRUNKLINE_NET_DROP_COUNTERS_H
#define TRUNKLINE_NET_DROP_COUNTERS_H

#include <stdint.h>

#include <pjsua-lib/pjsua.h>

#define AWAY_EVENTS 64      /* sources remembered between two looks: bounded, whatever the flood */
#define AWAY_HEADER (PJ_INET6_ADDRSTRLEN + 1)
#define AWAY_SAMPLE 2048    /* bytes of a message: its method and Call-ID are mostly among them */

enum away_kind {
    AWAY_UNKNOWN_SOURCE,
    AWAY_GARBAGE,
    AWAY_TOO_MANY_INVITES,
    AWAY_TOO_MANY_CONNECTIONS,
    AWAY_SLOW_CONNECTION,
    AWAY_OWN_CHALLENGE,
    AWAY_MEDIA_REFUSED,     /* an SDP names what no host has */
    AWAY_MEDIA_ELSEWHERE,   /* one names an address that is waited for (`rtp/media_address_policy.h`); nothing is turned away yet */
    AWAY_KINDS
};

typedef struct away_event {
    enum away_kind kind;
    char source[PJ_INET6_ADDRSTRLEN];
    uint64_t count;
    char header[AWAY_HEADER];   /* of the first message that was told of: what could not be read, or may not be; "": not known */
    pj_size_t size;             /* and how it began */
    char sample[AWAY_SAMPLE];
} away_event_t;

void turned_away(enum away_kind kind, const char *source);
/* The same with what an operator looks for. */
void turned_away_message(enum away_kind kind, const char *source, const pj_str_t *header, const char *data, pj_size_t size);
/* Hand out and forget what happened since the last look; returns how many, `*more` counts what came of unlisted sources. */
int away_take(away_event_t *out, uint64_t *more);
/* How often each kind happened since the process began: AWAY_KINDS numbers. */
void away_totals(uint64_t *totals);
const char *away_name(enum away_kind kind);

#endif
