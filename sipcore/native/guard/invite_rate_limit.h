/* INVITE rate limit: a token bucket for each recent source IP. */
#ifndef TRUNKLINE_GUARD_INVITE_RATE_LIMIT_H
#define TRUNKLINE_GUARD_INVITE_RATE_LIMIT_H

#include "net/ip_set.h"

#define INVITE_BURST_S 2    /* capacity of a bucket, in seconds of tokens */

/* Tokens per second and source; 0: no limit. Resets all buckets. */
void invite_rate_limit_set(unsigned per_second);
/* Takes a token of this source; false if none is left. The clock is monotonic. Memory is fixed: if no entry is free, that of
 * the source whose last INVITE is oldest is reused. */
bool invite_rate_limit_take(const ip_key_t *source, int64_t now_ms);

#endif
