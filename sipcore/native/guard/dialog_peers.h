/* Who a dialog is with: the addresses that may send requests in it. Its tags are no secret to whoever has seen a message. */
#ifndef TRUNKLINE_GUARD_DIALOG_PEERS_H
#define TRUNKLINE_GUARD_DIALOG_PEERS_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>

int dialog_peers_install(void);
void dialog_peers_remove(void);
/* Whether a message has gone there in the dialog, its route set names the address, or its remote target is there. The
 * dialog is locked. */
bool dialog_peers_has(const pjsip_dialog *dialog, const pj_sockaddr *source);

#endif
