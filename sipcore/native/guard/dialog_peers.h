/* Dialog peers: the addresses that may send requests within a dialog. Its tags alone prove nothing: every host that has seen
 * a message knows them. */
#ifndef TRUNKLINE_GUARD_DIALOG_PEERS_H
#define TRUNKLINE_GUARD_DIALOG_PEERS_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>

int dialog_peers_install(void);
void dialog_peers_remove(void);
/* True if a message of the dialog was sent to this address, or its route set or remote target has it. The dialog is locked. */
bool dialog_peers_has(const pjsip_dialog *dialog, const pj_sockaddr *source);

#endif
