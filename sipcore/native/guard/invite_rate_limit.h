/* How many INVITEs a source may begin in a second: a bucket of tokens for each of the sources seen lately. */
#ifndef TRUNKLINE_GUARD_INVITE_RATE_LIMIT_H
#define TRUNKLINE_GUARD_INVITE_RATE_LIMIT_H

#include "net/ip_set.h"

#define INVITE_BURST_S 2    /* so many seconds' worth may come at once */

/* Tokens a second; 0: no limit. Forgets what sources have used. */
void invite_rate_limit_set(unsigned per_second);
/* Take a token of this source; false when it has none left. The clock only goes forward. Memory is fixed: of more sources
 * at once than there are places, those that were quiet longest are forgotten. */
bool invite_rate_limit_take(const ip_key_t *source, int64_t now_ms);

#endif
