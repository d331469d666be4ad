#define _GNU_SOURCE
#include "net/sdp.h"

#include "net/ip_literal.h"

static void set_connection(pjmedia_sdp_conn *conn, const pj_str_t *type, const pj_str_t *address)
{
    if (!conn)
        return;
    conn->addr_type = *type;
    conn->addr = *address;
}

/* RFC 3605. */
static void set_rtcp_address(pjmedia_sdp_attr *attribute, pj_pool_t *pool, const pj_str_t *type, const pj_str_t *address)
{
    pjmedia_sdp_rtcp_attr rtcp;
    char text[64];
    if (pj_strcmp2(&attribute->name, "rtcp") != 0 || pjmedia_sdp_attr_get_rtcp(attribute, &rtcp) != PJ_SUCCESS ||
        !rtcp.addr.slen)
        return;
    pj_ansi_snprintf(text, sizeof text, "%u IN %.*s %.*s", rtcp.port, (int)type->slen, type->ptr, (int)address->slen,
                     address->ptr);
    pj_strdup2(pool, &attribute->value, text);
}

void sdp_set_address(pjmedia_sdp_session *sdp, pj_pool_t *pool, const pj_sockaddr *ours)
{
    char text[PJ_INET6_ADDRSTRLEN];
    pj_str_t address;
    const pj_str_t type = pj_str(ours->addr.sa_family == pj_AF_INET6() ? "IP6" : "IP4");
    pj_strdup2(pool, &address, pj_sockaddr_print(ours, text, sizeof text, 0));
    sdp->origin.addr_type = type;
    sdp->origin.addr = address;
    set_connection(sdp->conn, &type, &address);
    for (unsigned i = 0; i < sdp->media_count; i++) {
        set_connection(sdp->media[i]->conn, &type, &address);
        for (unsigned j = 0; j < sdp->media[i]->attr_count; j++)
            set_rtcp_address(sdp->media[i]->attr[j], pool, &type, &address);
    }
}

/* RFC 3605: a=rtcp may name an address of its own. */
static pj_bool_t media_has_addresses(const pjmedia_sdp_media *media)
{
    if (media->conn && !ip_literal_is_valid(&media->conn->addr))
        return PJ_FALSE;
    for (unsigned i = 0; i < media->attr_count; i++) {
        pjmedia_sdp_rtcp_attr rtcp;
        if (pj_strcmp2(&media->attr[i]->name, "rtcp") == 0 &&
            pjmedia_sdp_attr_get_rtcp(media->attr[i], &rtcp) == PJ_SUCCESS && rtcp.addr.slen &&
            !ip_literal_is_valid(&rtcp.addr))
            return PJ_FALSE;
    }
    return PJ_TRUE;
}

pj_bool_t sdp_has_ip_literals(const pjmedia_sdp_session *sdp)
{
    if (sdp->conn && !ip_literal_is_valid(&sdp->conn->addr))
        return PJ_FALSE;
    for (unsigned i = 0; i < sdp->media_count; i++)
        if (!media_has_addresses(sdp->media[i]))
            return PJ_FALSE;
    return PJ_TRUE;
}

pjmedia_dir sdp_direction(const pjmedia_sdp_session *sdp, unsigned media)
{
    static const struct {
        const char *name;
        pjmedia_dir direction;
    } attributes[] = {{"inactive", PJMEDIA_DIR_NONE}, {"sendonly", PJMEDIA_DIR_ENCODING}, {"recvonly", PJMEDIA_DIR_DECODING},
                {"sendrecv", PJMEDIA_DIR_ENCODING_DECODING}};
    for (unsigned i = 0; i < PJ_ARRAY_SIZE(attributes); i++)
        if (pjmedia_sdp_media_find_attr2(sdp->media[media], attributes[i].name, NULL))
            return attributes[i].direction;
    for (unsigned i = 0; i < PJ_ARRAY_SIZE(attributes); i++)
        if (pjmedia_sdp_attr_find2(sdp->attr_count, sdp->attr, attributes[i].name, NULL))
            return attributes[i].direction;
    return PJMEDIA_DIR_ENCODING_DECODING;
}
