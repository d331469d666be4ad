/* IP addresses as text. PJSIP's own parser asks the resolver for any other text, and all calls wait until it answers. */
#ifndef TRUNKLINE_NET_IP_LITERAL_H
#define TRUNKLINE_NET_IP_LITERAL_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>

/* False if the text is not an IPv4 or IPv6 address. The port is 0. */
bool ip_literal_parse(const pj_str_t *text, pj_sockaddr *address);
bool ip_literal_is_valid(const pj_str_t *text);

#endif
