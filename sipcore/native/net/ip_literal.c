#include "net/ip_literal.h"

bool ip_literal_parse(const pj_str_t *text, pj_sockaddr *address)
{
    pj_bzero(address, sizeof *address);
    if (text->slen <= 0 || text->slen >= PJ_INET6_ADDRSTRLEN)
        return false;
    if (pj_inet_pton(pj_AF_INET(), text, &address->ipv4.sin_addr) == PJ_SUCCESS)
        address->addr.sa_family = pj_AF_INET();
    else if (pj_inet_pton(pj_AF_INET6(), text, &address->ipv6.sin6_addr) == PJ_SUCCESS)
        address->addr.sa_family = pj_AF_INET6();
    else
        return false;
    return true;
}

bool ip_literal_is_valid(const pj_str_t *text)
{
    pj_sockaddr address;
    return ip_literal_parse(text, &address);
}
