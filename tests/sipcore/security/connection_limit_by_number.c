/* The connection limit for a test: connections as numbers, sources as text. */
#include "guard/connection_limit.h"

static pjsip_transport *numbered(int number)
{
    return (pjsip_transport *)(intptr_t)number;
}

int add(int number, const char *source, int unknown)
{
    pj_sockaddr address;
    ip_key_t key;
    pj_str_t text = pj_str((char *)source);
    return pj_sockaddr_parse(pj_AF_UNSPEC(), 0, &text, &address) == PJ_SUCCESS && ip_key_of(&address, &key) &&
           connection_limit_add(numbered(number), &key, unknown, 0);
}

void message_complete(int number, int known)
{
    connection_limit_message_complete(numbered(number), known);
}

void clear(void)
{
    connection_limit_clear();
}
