#include "tls/certificate_name_mismatch.h"

#include "net/ip_literal.h"

#include <pthread.h>

#define CONNECTIONS PJSUA_MAX_ACC /* connections to IP addresses; there are hardly more trunks */

static struct {
    pthread_mutex_t lock;
    struct {
        const pjsip_transport *transport;
        bool name_mismatch; /* else it carries requests outside of dialogs */
    } entry[CONNECTIONS];
    int count;
} connections = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The lock is held. Assigns the kind to a new connection; true if the connection has this kind. */
static bool assign_kind_locked(const pjsip_transport *transport, bool name_mismatch)
{
    int i = 0;
    while (i < connections.count && connections.entry[i].transport != transport)
        i++;
    if (i == CONNECTIONS)
        return false;
    if (i == connections.count) {
        connections.entry[connections.count].transport = transport;
        connections.entry[connections.count++].name_mismatch = name_mismatch;
    }
    return connections.entry[i].name_mismatch == name_mismatch;
}

static bool assign_kind(const pjsip_transport *transport, bool name_mismatch)
{
    pthread_mutex_lock(&connections.lock);
    bool is = assign_kind_locked(transport, name_mismatch);
    pthread_mutex_unlock(&connections.lock);
    return is;
}

bool tls_name_mismatch_allow(const pjsip_transport *transport)
{
    return assign_kind(transport, true);
}

bool tls_name_mismatch_admit_request(const pjsip_tx_data *request)
{
    const pjsip_transport *transport = request->tp_info.transport;
    const pjsip_to_hdr *to = PJSIP_MSG_TO_HDR(request->msg);
    if (!transport || transport->dir != PJSIP_TP_DIR_OUTGOING || !(transport->flag & PJSIP_TRANSPORT_SECURE) || !to ||
        to->tag.slen || !ip_literal_is_valid(&transport->remote_name.host))
        return true;
    return assign_kind(transport, false);
}

void tls_name_mismatch_remove(const pjsip_transport *transport)
{
    pthread_mutex_lock(&connections.lock);
    for (int i = connections.count - 1; i >= 0; i--)
        if (!transport || connections.entry[i].transport == transport)
            connections.entry[i] = connections.entry[--connections.count];
    pthread_mutex_unlock(&connections.lock);
}
