#define _GNU_SOURCE
#include "sip/replaces.h"

#include "pump/pump.h"

#include <pjsua-lib/pjsua_internal.h>

static void (*next_replaced)(pjsua_call_id, pjsua_call_id);

/* PJSUA answers the new call only after this, so there is no stream of it yet. */
static void on_replaced(pjsua_call_id before, pjsua_call_id after)
{
    pump_hand_over(before, after);
    if (next_replaced)
        next_replaced(before, after);
}

void handover_hook(pjsua_callback *callback)
{
    next_replaced = callback->on_call_replaced;
    callback->on_call_replaced = on_replaced;
}

bool handover_asked(const pjsip_rx_data *rdata)
{
    const pj_str_t name = {"Replaces", 8};
    return pjsip_msg_find_hdr_by_name(rdata->msg_info.msg, &name, NULL) != NULL;
}

/* PJSUA lets both have the same user data until pjsua2 sets it; no other two calls ever have. */
pjsua_call_id handover_of(pjsua_call_id call)
{
    const void *owner = pjsua_var.calls[call].user_data;
    for (int i = 0; owner && i < (int)pjsua_var.ua_cfg.max_calls; i++)
        if (i != call && pjsua_var.calls[i].inv && pjsua_var.calls[i].user_data == owner)
            return i;
    return PJSUA_INVALID_ID;
}
