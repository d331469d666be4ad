/* An SDP: whether its addresses are addresses, what its directions are, and ours put in their place. */
#include "stack.h"

#include <string.h>

#include "../../../sipcore/native/address.h"
#include "../../../sipcore/native/sdp.h"

#define PRINTED 64000

static void rename_and_print(pj_pool_t *pool, const pjmedia_sdp_session *sdp, const char *ours)
{
    static char text[PRINTED];
    pj_sockaddr address;
    const pj_str_t host = pj_str((char *)ours);
    pjmedia_sdp_session *named = pjmedia_sdp_session_clone(pool, sdp), *again;
    pj_sockaddr_parse(pj_AF_UNSPEC(), 0, &host, &address);
    sdp_name_address(named, pool, &address);
    must(sdp_has_addresses(named), "with our address in every place, each holds an address");
    const int size = pjmedia_sdp_print(named, text, sizeof text);
    if (size > 0 && pjmedia_sdp_validate(named) == PJ_SUCCESS)
        must(pjmedia_sdp_parse(pool, text, (pj_size_t)size, &again) == PJ_SUCCESS, "what we print can be read");
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
    sdp_has_addresses(sdp);
    address_speaks_version_of(sdp);
    for (unsigned i = 0; i < sdp->media_count; i++)
        must(sdp_direction(sdp, i) <= PJMEDIA_DIR_ENCODING_DECODING, "a direction is one");
    rename_and_print(pool, sdp, "192.0.2.7");
    rename_and_print(pool, sdp, "2001:db8::7");
    return 0;
}
