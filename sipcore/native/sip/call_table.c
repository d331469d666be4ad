#define _GNU_SOURCE
#include "sip/call_table.h"

#include <pjsua-lib/pjsua.h>
#include <pjsua-lib/pjsua_internal.h>
#include <stdbool.h>

#define MIN_FREE_ENTRIES 4 /* both of PJSIP's threads may be about to use one */

static bool is_lingering(const pjsua_call *call)
{
    return call->inv && call->hanging_up;
}

/* PJSUA is locked. The call that was hung up first; PJSUA_INVALID_ID if none is hung up. */
static pjsua_call_id oldest_lingering(void)
{
    pjsua_call_id oldest = PJSUA_INVALID_ID;
    for (int i = 0; i < (int)pjsua_var.ua_cfg.max_calls; i++) {
        const pjsua_call *call = &pjsua_var.calls[i];
        if (is_lingering(call) &&
            (oldest < 0 || PJ_TIME_VAL_LT(call->dis_time, pjsua_var.calls[oldest].dis_time)))
            oldest = i;
    }
    return oldest;
}

/* Its INVITE is no longer retransmitted; a BYE is, as before. False if no entry could be freed. */
static bool terminate_oldest(void)
{
    pjsua_call *call = NULL;
    pjsip_dialog *dialog = NULL;
    PJSUA_LOCK();
    pjsua_call_id oldest = oldest_lingering();
    PJSUA_UNLOCK();
    if (oldest == PJSUA_INVALID_ID || acquire_call("make room", oldest, &call, &dialog) != PJ_SUCCESS)
        return false;
    if (is_lingering(call)) /* else it has ended by itself, and its entry is another call's */
        pjsip_inv_terminate(call->inv, PJSIP_SC_REQUEST_TIMEOUT, PJ_TRUE);
    pjsip_dlg_dec_lock(dialog);
    return true;
}

void call_table_make_room(void)
{
    for (int i = 0; i < MIN_FREE_ENTRIES && call_table_used() + MIN_FREE_ENTRIES > pjsua_var.ua_cfg.max_calls; i++)
        if (!terminate_oldest())
            return;
}

unsigned call_table_used(void)
{
    return pjsua_call_get_count();
}
