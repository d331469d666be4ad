/* INVITE rate limit: a token bucket for each recent source IP. */
#ifndef TRUNKLINE_GUARD_INVITE_RATE_LIMIT_H
#define TRUNKLINE_GUARD_INVITE_RATE_LIMIT_H

#include "net/ip_set.h"

#define INVITE_BURST_S 2    /* so many seconds' worth may come at once */

/* Tokens per second and source; 0: no limit. Resets all buckets. */
void invite_rate_limit_set(unsigned per_second);
/* Takes a token of this source; false if none is left. The clock only goes forward. Memory is fixed: with more sources than
 * entries, those that were quiet longest are forgotten. */
bool invite_rate_limit_take(const ip_key_t *source, int64_t now_ms);

#endif
