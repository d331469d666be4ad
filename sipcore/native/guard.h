/* What stands between the network and the SIP stack: who may talk to us at all, and what is answered without Python. */
#ifndef TRUNKLINE_GUARD_H
#define TRUNKLINE_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include <pjsua-lib/pjsua.h>

#define GUARD_EVENTS 64     /* sources remembered between two looks: bounded, whatever the flood */

enum guard_event_kind { GUARD_UNKNOWN_SOURCE, GUARD_GARBAGE };

typedef struct guard_event {
    enum guard_event_kind kind;
    char source[PJ_INET6_ADDRSTRLEN];
    uint64_t count;
} guard_event_t;

int guard_install(void);
void guard_remove(void);
/* Addresses as text, copied. `probes` may only send OPTIONS. */
void guard_set_sources(const char *const *known, int known_count, const char *const *probes, int probe_count);
void guard_set_answers(bool refuse_unknown_with_403, bool accepting, int retry_after_s);
/* Hand out and forget what happened since the last look; returns how many, `*more` counts packets of unlisted sources. */
int guard_take_events(guard_event_t *out, uint64_t *more);

#endif
