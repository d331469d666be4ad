#define _GNU_SOURCE
#include "sip/replaces.h"

#include "pump/pump.h"

static void (*next_replaced)(pjsua_call_id, pjsua_call_id);

/* PJSUA answers the new call only after this, so there is no stream of it yet. */
static void on_replaced(pjsua_call_id before, pjsua_call_id after)
{
    pump_move_slot(before, after);
    if (next_replaced)
        next_replaced(before, after);
}

void replaces_hook(pjsua_callback *callback)
{
    next_replaced = callback->on_call_replaced;
    callback->on_call_replaced = on_replaced;
}

bool replaces_is_requested(const pjsip_rx_data *rdata)
{
    const pj_str_t name = {"Replaces", 8};
    return pjsip_msg_find_hdr_by_name(rdata->msg_info.msg, &name, NULL) != NULL;
}
