#include "account.h"

#include <pjsua-lib/pjsua_internal.h>

static bool is_trunk[PJSUA_MAX_ACC]; /* by account; under PJSUA's lock */

static void belongs_to_default(const pjsip_rx_data *rdata, pjsua_acc_id *account)
{
    (void)rdata;
    PJSUA_LOCK();
    if (*account >= 0 && *account < PJSUA_MAX_ACC && is_trunk[*account])
        *account = pjsua_var.default_acc;
    PJSUA_UNLOCK();
}

void account_install(void)
{
    pjsua_var.ua_cfg.cb.on_acc_find_for_incoming = belongs_to_default;
}

pj_status_t account_set_route(pjsua_acc_id account, const char *const *routes, int count)
{
    const pj_str_t name = {"Route", 5};
    pj_status_t status = PJ_SUCCESS;
    PJSUA_LOCK();
    if (!pjsua_acc_is_valid(account)) {
        PJSUA_UNLOCK();
        return PJ_EINVAL;
    }
    pjsua_acc *acc = &pjsua_var.acc[account];
    is_trunk[account] = true;
    pj_list_init(&acc->route_set);
    for (int i = 0; i < count && status == PJ_SUCCESS; i++) {
        pj_str_t text, given = pj_str((char *)routes[i]);
        pj_strdup_with_null(acc->pool, &text, &given);
        pjsip_route_hdr *route = pjsip_parse_hdr(acc->pool, &name, text.ptr, (pj_size_t)text.slen, NULL);
        status = route ? PJ_SUCCESS : PJSIP_EINVALIDHDR;
        if (route)
            pj_list_push_back(&acc->route_set, route);
    }
    PJSUA_UNLOCK();
    return status;
}

bool account_delete(pjsua_acc_id account)
{
    const pjsua_acc_del_param unless_busy = {.force = PJ_FALSE};
    pj_status_t status = PJ_SUCCESS;
    PJSUA_LOCK();
    if (pjsua_acc_is_valid(account))
        status = pjsua_acc_del2(account, &unless_busy);
    if (status != PJ_EBUSY)
        is_trunk[account] = false;
    PJSUA_UNLOCK();
    return status != PJ_EBUSY;
}
