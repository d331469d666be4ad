/* Contacts of a REGISTER: the binding that it adds, the binding that it removes, and the granted expiry. */
#ifndef TRUNKLINE_TRUNKS_CONTACT_BINDING_H
#define TRUNKLINE_TRUNKS_CONTACT_BINDING_H

#include <pjsua-lib/pjsua.h>

/* Adds `former` with expires=0, unless it is `contact`. */
void contact_binding_remove_former(pjsip_tx_data *tdata, const char *former, const pj_str_t *contact);
/* Granted expiry in s; 0 if our Contact is not among those of the response. */
unsigned contact_binding_granted_s(const pjsip_uri *composed, unsigned requested_s, const pjsip_msg *sent,
                                   const pjsip_msg *message);
/* Port of our Contact as sent; 0: none. */
int contact_binding_port(const pjsip_msg *sent);
/* Prints our Contact as sent. */
void contact_binding_print(const pjsip_msg *sent, char *contact, size_t size);

#endif
