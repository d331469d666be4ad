#define _GNU_SOURCE
#include "sip/codec_list.h"

#include <pjsua-lib/pjsua_internal.h>
#include <stdint.h>
#include <string.h>

#define MAX_CODECS 4

static const struct {
    const char *name;
    unsigned clock_rate;
    const char *payload_type; /* static (RFC 3551, 6) */
} codecs[MAX_CODECS] = {{"opus", 48000, NULL}, {"G722", 8000, "9"}, {"PCMU", 8000, "0"}, {"PCMA", 8000, "8"}};

/* The dialog's list is the value of its pointer. */
static pjsip_module module = {
    .name = {"mod-trunkline-codecs", 20},
    .id = -1,
    .priority = PJSIP_MOD_PRIORITY_APPLICATION,
};

static _Thread_local codec_list_t of_next_invites;

/* Of the latest INVITE with Replaces; its dialog has the same Call-ID. */
static _Thread_local struct {
    pj_uint32_t call_id_hash;
    codec_list_t list;
} of_replaced;

/* Number of the codec from 1; 0 after the last. */
static unsigned entry(codec_list_t list, unsigned index)
{
    return index < MAX_CODECS ? list >> 8 * index & 0xff : 0;
}

bool codec_list_add(codec_list_t *list, const char *name)
{
    unsigned count = 0, codec = 1;
    while (codec <= MAX_CODECS && strcmp(codecs[codec - 1].name, name) != 0)
        codec++;
    while (entry(*list, count) && entry(*list, count) != codec)
        count++;
    if (codec > MAX_CODECS || entry(*list, count))
        return false;
    *list |= codec << 8 * count;
    return true;
}

/* ---- SDP ---- */

typedef struct format {
    unsigned codec; /* its number from 1; 0: another payload type */
    bool is_event;
    unsigned clock_rate;
} format_t;

static format_t format_of(const pjmedia_sdp_media *media, const pj_str_t *payload_type)
{
    const pjmedia_sdp_attr *attribute = pjmedia_sdp_media_find_attr2(media, "rtpmap", payload_type);
    pjmedia_sdp_rtpmap map;
    const bool is_mapped = attribute && pjmedia_sdp_attr_get_rtpmap(attribute, &map) == PJ_SUCCESS;
    format_t format = {0, is_mapped && pj_stricmp2(&map.enc_name, "telephone-event") == 0, is_mapped ? map.clock_rate : 0};
    for (unsigned i = 0; i < MAX_CODECS && !format.codec; i++)
        if (is_mapped ? pj_stricmp2(&map.enc_name, codecs[i].name) == 0
                      : codecs[i].payload_type && pj_strcmp2(payload_type, codecs[i].payload_type) == 0)
            format.codec = i + 1;
    return format;
}

static bool has_clock_rate(codec_list_t list, unsigned clock_rate)
{
    for (unsigned i = 0; entry(list, i); i++)
        if (codecs[entry(list, i) - 1].clock_rate == clock_rate)
            return true;
    return false;
}

static bool stays(format_t format, codec_list_t list)
{
    return !format.codec && (!format.is_event || has_clock_rate(list, format.clock_rate));
}

static void remove_attributes(pjmedia_sdp_media *media, const pj_str_t *payload_type)
{
    static const char *const names[] = {"rtpmap", "fmtp"};
    for (unsigned i = 0; i < PJ_ARRAY_SIZE(names); i++) {
        pjmedia_sdp_attr *attribute;
        while ((attribute = pjmedia_sdp_media_find_attr2(media, names[i], payload_type)))
            pjmedia_sdp_media_remove_attr(media, attribute);
    }
}

static void limit_media(pjmedia_sdp_media *media, codec_list_t list)
{
    pj_str_t kept[PJMEDIA_MAX_SDP_FMT];
    unsigned count = 0;
    for (unsigned i = 0; entry(list, i); i++)
        for (unsigned j = 0; j < media->desc.fmt_count; j++)
            if (format_of(media, &media->desc.fmt[j]).codec == entry(list, i))
                kept[count++] = media->desc.fmt[j];
    const unsigned listed = count;
    for (unsigned j = 0; j < media->desc.fmt_count && listed; j++)
        if (stays(format_of(media, &media->desc.fmt[j]), list))
            kept[count++] = media->desc.fmt[j];
    if (!listed)
        return; /* an SDP that the endpoint's codecs have not made */
    for (unsigned j = 0; j < media->desc.fmt_count; j++) {
        unsigned k = 0;
        while (k < count && pj_strcmp(&kept[k], &media->desc.fmt[j]) != 0)
            k++;
        if (k == count)
            remove_attributes(media, &media->desc.fmt[j]);
    }
    memcpy(media->desc.fmt, kept, count * sizeof *kept);
    media->desc.fmt_count = count;
}

static void limit_sdp(pjmedia_sdp_session *sdp, codec_list_t list)
{
    for (unsigned i = 0; i < sdp->media_count; i++)
        if (sdp->media[i]->desc.port && pj_stricmp2(&sdp->media[i]->desc.media, "audio") == 0)
            limit_media(sdp->media[i], list);
}

/* ---- the list of a dialog ---- */

static codec_list_t list_of(const pjsip_dialog *dialog)
{
    return module.id == -1 ? 0 : (codec_list_t)(uintptr_t)dialog->mod_data[module.id];
}

static void set_list(pjsip_dialog *dialog, codec_list_t list)
{
    if (module.id != -1)
        dialog->mod_data[module.id] = (void *)(uintptr_t)list;
}

/* The first SDP of a call is written before its INVITE session exists. */
static pjsip_dialog *dialog_of(const pjsua_call *call)
{
    return call->inv ? call->inv->dlg : call->async_call.dlg;
}

static codec_list_t initial_list(const pjsip_dialog *dialog)
{
    const pj_str_t *call_id = &dialog->call_id->id;
    if (dialog->role == PJSIP_ROLE_UAC)
        return of_next_invites;
    return of_replaced.list && of_replaced.call_id_hash == pj_hash_calc(0, call_id->ptr, (unsigned)call_id->slen)
               ? of_replaced.list
               : 0;
}

void codec_list_of_next_invites(codec_list_t list)
{
    of_next_invites = list;
}

void codec_list_on_sdp_created(pjsua_call_id call, pjmedia_sdp_session *sdp)
{
    pjsip_dialog *dialog = dialog_of(&pjsua_var.calls[call]);
    if (!dialog)
        return;
    if (!list_of(dialog) && dialog->state == PJSIP_DIALOG_STATE_NULL)
        set_list(dialog, initial_list(dialog));
    if (list_of(dialog))
        limit_sdp(sdp, list_of(dialog));
}

/* By a trial, because only PJMEDIA's negotiation knows what it takes for the same codec. */
static bool can_be_answered(pj_pool_t *pool, const pjmedia_sdp_session *local, const pjmedia_sdp_session *remote)
{
    pjmedia_sdp_neg *trial = NULL;
    return pjmedia_sdp_neg_create_w_remote_offer(pool, local, remote, &trial) == PJ_SUCCESS &&
           pjmedia_sdp_neg_negotiate(pool, trial, PJ_FALSE) == PJ_SUCCESS;
}

pj_status_t codec_list_limit(pjsua_call_id number, codec_list_t list, bool *offered)
{
    pjsua_call *call = NULL;
    pjsip_dialog *dialog = NULL;
    const pjmedia_sdp_session *local = NULL, *remote = NULL;
    *offered = true;
    pj_status_t status = acquire_call("codecs", number, &call, &dialog);
    if (status != PJ_SUCCESS)
        return status;
    pjsip_inv_session *inv = call->inv;
    if (dialog)
        set_list(dialog, list);
    /* PJSUA has written the answer already, but sent nothing of it. */
    if (dialog && inv->neg && pjmedia_sdp_neg_get_state(inv->neg) == PJMEDIA_SDP_NEG_STATE_WAIT_NEGO &&
        pjmedia_sdp_neg_get_neg_local(inv->neg, &local) == PJ_SUCCESS &&
        pjmedia_sdp_neg_get_neg_remote(inv->neg, &remote) == PJ_SUCCESS) {
        limit_sdp((pjmedia_sdp_session *)local, list);
        *offered = can_be_answered(inv->pool_prov, local, remote);
    }
    if (dialog)
        pjsip_dlg_dec_lock(dialog);
    return status;
}

/* ---- INVITE with Replaces ---- */

static void (*next_replace_request)(pjsua_call_id, pjsip_rx_data *, int *, pj_str_t *, pjsua_call_setting *);

static void on_replace_request(pjsua_call_id before, pjsip_rx_data *rdata, int *code, pj_str_t *reason,
                               pjsua_call_setting *options)
{
    const pjsip_dialog *dialog = dialog_of(&pjsua_var.calls[before]);
    const pj_str_t *call_id = &rdata->msg_info.cid->id;
    of_replaced.call_id_hash = pj_hash_calc(0, call_id->ptr, (unsigned)call_id->slen);
    of_replaced.list = dialog ? list_of(dialog) : 0;
    if (next_replace_request)
        next_replace_request(before, rdata, code, reason, options);
}

void codec_list_hook(pjsua_callback *callback)
{
    next_replace_request = callback->on_call_replace_request2;
    callback->on_call_replace_request2 = on_replace_request;
}

int codec_list_install(void)
{
    return pjsip_endpt_register_module(pjsua_get_pjsip_endpt(), &module) == PJ_SUCCESS ? 0 : -1;
}

void codec_list_remove(void)
{
    if (module.id != -1)
        pjsip_endpt_unregister_module(pjsua_get_pjsip_endpt(), &module);
}
