/* An SDP: its addresses, its directions, our address in their place; and its negotiation as the answer to an offer. */
#include "stack.h"

#include <string.h>

#include <pjsua-lib/pjsua_internal.h>

#include "sip/local_address.h"
#include "net/sdp.h"
#include "rtp/srtp.h"

#define PRINTED 64000

static const char offer[] = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\n"
                            "m=audio 4000 RTP/AVP 0 8 101\r\na=rtcp:4001 IN IP4 192.0.2.1\r\n"
                            "a=rtpmap:101 telephone-event/8000\r\n"
                            "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:WVNfX19zZW1jdGwgKCkgewkyMjA7fQp9CnVubGVz\r\n";

static void rename_and_print(pj_pool_t *pool, const pjmedia_sdp_session *sdp, const char *ours)
{
    static char text[PRINTED];
    pj_sockaddr address;
    const pj_str_t host = pj_str((char *)ours);
    pjmedia_sdp_session *named = pjmedia_sdp_session_clone(pool, sdp), *again;
    pj_sockaddr_parse(pj_AF_UNSPEC(), 0, &host, &address);
    sdp_set_address(named, pool, &address);
    must(sdp_has_ip_literals(named), "with our address in every place, each holds an address");
    const int size = pjmedia_sdp_print(named, text, sizeof text);
    if (size > 0 && pjmedia_sdp_validate(named) == PJ_SUCCESS)
        must(pjmedia_sdp_parse(pool, text, (pj_size_t)size, &again) == PJ_SUCCESS, "what we print can be read");
}

static pjmedia_sdp_session *our_offer(pj_pool_t *pool, const pjmedia_sdp_session *remote)
{
    pjmedia_sdp_session *ours;
    char *text = pj_pool_alloc(pool, sizeof offer);
    memcpy(text, offer, sizeof offer);
    must(pjmedia_sdp_parse(pool, text, sizeof offer - 1, &ours) == PJ_SUCCESS, "our own offer can be read");
    local_address_on_sdp_created(0, ours, pool, remote);
    must(sdp_has_ip_literals(ours), "whatever the peer says, we name addresses");
    return ours;
}

static bool has_keys(const pjmedia_sdp_session *sdp)
{
    for (unsigned i = 0; i < sdp->media_count; i++)
        if (pjmedia_sdp_media_find_attr2(sdp->media[i], "crypto", NULL))
            return true;
    return false;
}

static void agree(pj_pool_t *pool, pjmedia_sdp_session *answer)
{
    pjmedia_sdp_neg *neg;
    char peer[PJ_INET6_ADDRSTRLEN];
    bool signalling = true;
    pjmedia_sdp_session *ours = our_offer(pool, NULL);
    must(pj_strcmp2(&ours->conn->addr, KNOWN_ADDRESS) == 0, "an offer names where we are");
    if (pjmedia_sdp_validate(answer) != PJ_SUCCESS || pjmedia_sdp_neg_create_w_local_offer(pool, ours, &neg) != PJ_SUCCESS ||
        pjmedia_sdp_neg_set_remote_answer(pool, neg, answer) != PJ_SUCCESS ||
        pjmedia_sdp_neg_negotiate(pool, neg, PJ_FALSE) != PJ_SUCCESS)
        return;
    pjsua_var.calls[0].inv->neg = neg;
    const enum srtp_keying found = srtp_keying_of(0, peer, sizeof peer, &signalling);
    pjsua_var.calls[0].inv->neg = NULL;
    must(found != SRTP_KEYING_SDES || has_keys(answer), "without keys of both there is no secret");
    must(found != SRTP_KEYING_DTLS, "nor without a handshake that was offered");
    must(!signalling && strcmp(peer, PEER_ADDRESS) == 0, "SIP over UDP is none");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pj_pool_t *pool = stack_pool();
    pjmedia_sdp_session *sdp;
    char *text = pj_pool_alloc(pool, size + 1);
    memcpy(text, data, size);
    text[size] = 0;
    if (pjmedia_sdp_parse(pool, text, size, &sdp) != PJ_SUCCESS)
        return 0;
    sdp_has_ip_literals(sdp);
    local_address_has_version_of(sdp);
    for (unsigned i = 0; i < sdp->media_count; i++)
        must(sdp_direction(sdp, i) <= PJMEDIA_DIR_ENCODING_DECODING, "a direction is one");
    rename_and_print(pool, sdp, "192.0.2.7");
    rename_and_print(pool, sdp, "2001:db8::7");
    our_offer(pool, sdp);
    agree(pool, sdp);
    return 0;
}
