#include "tls/unverified_address.h"

#include "net/ip_literal.h"

#include <pthread.h>

#define CONNECTIONS PJSUA_MAX_ACC /* to addresses; there are hardly more trunks */

static struct {
    pthread_mutex_t lock;
    struct {
        const pjsip_transport *transport;
        bool borrowed;  /* else something begins over it */
    } place[CONNECTIONS];
    int count;
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The lock is held. Whether it is noted, now or before, and is of that kind. */
static bool note(const pjsip_transport *transport, bool borrowed)
{
    int i = 0;
    while (i < known.count && known.place[i].transport != transport)
        i++;
    if (i == CONNECTIONS)
        return false;
    if (i == known.count) {
        known.place[known.count].transport = transport;
        known.place[known.count++].borrowed = borrowed;
    }
    return known.place[i].borrowed == borrowed;
}

static bool noted(const pjsip_transport *transport, bool borrowed)
{
    pthread_mutex_lock(&known.lock);
    bool is = note(transport, borrowed);
    pthread_mutex_unlock(&known.lock);
    return is;
}

bool tls_borrowed_allow(const pjsip_transport *transport)
{
    return noted(transport, true);
}

bool tls_borrowed_may_carry(const pjsip_tx_data *request)
{
    const pjsip_transport *transport = request->tp_info.transport;
    const pjsip_to_hdr *to = PJSIP_MSG_TO_HDR(request->msg);
    if (!transport || transport->dir != PJSIP_TP_DIR_OUTGOING || !(transport->flag & PJSIP_TRANSPORT_SECURE) || !to ||
        to->tag.slen || !literal_is_address(&transport->remote_name.host))
        return true;
    return noted(transport, false);
}

void tls_borrowed_forget(const pjsip_transport *transport)
{
    pthread_mutex_lock(&known.lock);
    for (int i = known.count - 1; i >= 0; i--)
        if (!transport || known.place[i].transport == transport)
            known.place[i] = known.place[--known.count];
    pthread_mutex_unlock(&known.lock);
}
