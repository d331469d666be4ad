#include "guard/dialog_peers.h"

#include "net/host_table.h"
#include "net/ip_set.h"

#include <string.h>

#define MAX_ADDRESSES 8 /* of one dialog; further ones must be in its route set */

typedef struct peers {
    int count;
    ip_key_t address[MAX_ADDRESSES];
} peers_t;

static pj_status_t on_tx(pjsip_tx_data *tdata);

static pjsip_module module = {
    .name = {"mod-trunkline-dialog-peers", 26},
    .id = -1,
    .priority = PJSIP_MOD_PRIORITY_TRANSPORT_LAYER + 3,
    .on_tx_request = on_tx,
    .on_tx_response = on_tx,
};

static bool contains(const peers_t *peers, const ip_key_t *key)
{
    for (int i = 0; peers && i < peers->count; i++)
        if (memcmp(&peers->address[i], key, sizeof *key) == 0)
            return true;
    return false;
}

/* The dialog is locked. */
static void add_peer(pjsip_dialog *dialog, const ip_key_t *key)
{
    peers_t *peers = dialog->mod_data[module.id];
    if (!peers)
        peers = dialog->mod_data[module.id] = PJ_POOL_ZALLOC_T(dialog->pool, peers_t);
    if (peers->count < MAX_ADDRESSES && !contains(peers, key))
        peers->address[peers->count++] = *key;
}

/* Our responses go to the source of the dialog's requests, our requests to the source of its responses. */
static pj_status_t on_tx(pjsip_tx_data *tdata)
{
    pjsip_dialog *dialog = pjsip_tdata_get_dlg(tdata);
    ip_key_t key;
    if (!dialog || !ip_key_of(&tdata->tp_info.dst_addr, &key))
        return PJ_SUCCESS;
    pj_grp_lock_acquire(dialog->grp_lock_);
    add_peer(dialog, &key);
    pj_grp_lock_release(dialog->grp_lock_);
    return PJ_SUCCESS;
}

int dialog_peers_install(void)
{
    return pjsip_endpt_register_module(pjsua_get_pjsip_endpt(), &module) == PJ_SUCCESS ? 0 : -1;
}

void dialog_peers_remove(void)
{
    if (module.id != -1)
        pjsip_endpt_unregister_module(pjsua_get_pjsip_endpt(), &module);
}

static bool resolves_to(const void *uri, const pj_sockaddr *source)
{
    const pjsip_uri *bare = uri ? pjsip_uri_get_uri(uri) : NULL;
    return bare && (PJSIP_URI_SCHEME_IS_SIP(bare) || PJSIP_URI_SCHEME_IS_SIPS(bare)) &&
           host_table_resolves_to((const pjsip_sip_uri *)bare, source);
}

bool dialog_peers_has(const pjsip_dialog *dialog, const pj_sockaddr *source)
{
    ip_key_t key;
    if (module.id == -1 || !ip_key_of(source, &key))
        return false;
    if (contains(dialog->mod_data[module.id], &key) || resolves_to(dialog->target, source))
        return true;
    const pjsip_route_hdr *route = dialog->route_set.next;
    for (; route != &dialog->route_set; route = route->next)
        if (resolves_to(route->name_addr.uri, source))
            return true;
    return false;
}
