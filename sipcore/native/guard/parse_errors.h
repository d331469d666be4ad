/* What PJSIP's parser throws away: a header that it cannot read makes it drop the whole message. */
#ifndef TRUNKLINE_GUARD_PARSE_ERRORS_H
#define TRUNKLINE_GUARD_PARSE_ERRORS_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

/* Count what is thrown away. A request of somebody whom `is_known` knows is answered with 400 where that is possible, and
 * read all the same when only its credentials are of a kind that PJSIP does not know. */
pj_status_t dropped_install(pjsip_tpmgr *transports, bool (*is_known)(const pj_sockaddr *source));

#endif
