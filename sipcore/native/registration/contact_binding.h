/* The Contacts of a REGISTER: what it binds, what it takes away, and what the registrar says of that. */
#ifndef TRUNKLINE_REGISTRATION_CONTACT_BINDING_H
#define TRUNKLINE_REGISTRATION_CONTACT_BINDING_H

#include <pjsua-lib/pjsua.h>

/* Take a Contact of before away, unless it is the one that is bound. */
void contact_binding_remove_former(pjsip_tx_data *tdata, const char *former, const pj_str_t *contact);
/* Seconds; 0 when our Contact is not among those that the answer names. */
unsigned contact_binding_granted_s(const pjsip_uri *composed, unsigned asked_s, const pjsip_msg *sent, const pjsip_msg *message);
/* Of our Contact as it stands in the message now; 0: none. */
int contact_binding_port(const pjsip_msg *sent);
/* Spell our Contact as it stands in the message now. */
void contact_binding_print(const pjsip_msg *sent, char *contact, size_t size);

#endif
