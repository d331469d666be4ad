/* Source guard in front of the SIP stack: which sources may send what, and which requests get a response without Python. */
#ifndef TRUNKLINE_GUARD_GUARD_H
#define TRUNKLINE_GUARD_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include <pjsua-lib/pjsua.h>

int guard_install(void);
void guard_remove(void);
void guard_set_policy(bool refuse_unknown_with_403, bool accepting, int retry_after_s);
/* Time in which a connection has to send a whole message. */
void guard_set_message_timeout(int milliseconds);

#endif
