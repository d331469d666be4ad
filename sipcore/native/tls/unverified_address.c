#include "tls/unverified_address.h"

#include "net/ip_literal.h"

#include <pthread.h>

#define CONNECTIONS PJSUA_MAX_ACC /* connections to IP addresses; there are hardly more trunks */

static struct {
    pthread_mutex_t lock;
    struct {
        const pjsip_transport *transport;
        bool unverified;  /* else it carries requests outside of dialogs */
    } entry[CONNECTIONS];
    int count;
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The lock is held. Notes the kind of a new connection; true if its kind is this one. */
static bool note_kind_locked(const pjsip_transport *transport, bool unverified)
{
    int i = 0;
    while (i < known.count && known.entry[i].transport != transport)
        i++;
    if (i == CONNECTIONS)
        return false;
    if (i == known.count) {
        known.entry[known.count].transport = transport;
        known.entry[known.count++].unverified = unverified;
    }
    return known.entry[i].unverified == unverified;
}

static bool note_kind(const pjsip_transport *transport, bool unverified)
{
    pthread_mutex_lock(&known.lock);
    bool is = note_kind_locked(transport, unverified);
    pthread_mutex_unlock(&known.lock);
    return is;
}

bool tls_unverified_allow(const pjsip_transport *transport)
{
    return note_kind(transport, true);
}

bool tls_unverified_admit_request(const pjsip_tx_data *request)
{
    const pjsip_transport *transport = request->tp_info.transport;
    const pjsip_to_hdr *to = PJSIP_MSG_TO_HDR(request->msg);
    if (!transport || transport->dir != PJSIP_TP_DIR_OUTGOING || !(transport->flag & PJSIP_TRANSPORT_SECURE) || !to ||
        to->tag.slen || !ip_literal_is_valid(&transport->remote_name.host))
        return true;
    return note_kind(transport, false);
}

void tls_unverified_forget(const pjsip_transport *transport)
{
    pthread_mutex_lock(&known.lock);
    for (int i = known.count - 1; i >= 0; i--)
        if (!transport || known.entry[i].transport == transport)
            known.entry[i] = known.entry[--known.count];
    pthread_mutex_unlock(&known.lock);
}
