/* What stands between the network and the SIP stack: who may talk to us at all, and what is answered without Python. */
#ifndef TRUNKLINE_GUARD_GUARD_H
#define TRUNKLINE_GUARD_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include <pjsua-lib/pjsua.h>

int guard_install(void);
void guard_remove(void);
void guard_set_policy(bool refuse_unknown_with_403, bool accepting, int retry_after_s);
/* How long a connection may take to send a whole message. */
void guard_set_message_timeout(int milliseconds);

#endif
