#include "trunks/account.h"

#include "sip/local_address.h"

#include <stdlib.h>
#include <string.h>

#include <pjsua-lib/pjsua_internal.h>

/* By account, under PJSUA's lock: its routes, one a line; NULL: no trunk's account. An account's pool only grows, so the
 * same routes are not set twice. */
static char *routes_of[PJSUA_MAX_ACC];

static void choose_account(const pjsip_rx_data *rdata, pjsua_acc_id *account)
{
    PJSUA_LOCK();
    if (*account >= 0 && *account < PJSUA_MAX_ACC && routes_of[*account])
        *account = pjsua_var.default_acc;
    local_address_choose_account(rdata, account);
    PJSUA_UNLOCK();
}

void account_install(void)
{
    for (int i = 0; i < PJSUA_MAX_ACC; i++) {
        free(routes_of[i]); /* of a PJSUA that has ended */
        routes_of[i] = NULL;
    }
    pjsua_var.ua_cfg.cb.on_acc_find_for_incoming = choose_account;
}

/* From malloc. */
static char *joined(const char *const *routes, int count)
{
    size_t size = 1;
    for (int i = 0; i < count; i++)
        size += strlen(routes[i]) + 1;
    char *text = calloc(size, 1);
    for (int i = 0; text && i < count; i++)
        strcat(strcat(text, routes[i]), "\n");
    return text;
}

/* All or none. */
static pj_status_t set_route(pjsua_acc *acc, const char *const *routes, int count)
{
    const pj_str_t name = {"Route", 5};
    pjsip_route_hdr set;
    pj_list_init(&set);
    for (int i = 0; i < count; i++) {
        pj_str_t text, given = pj_str((char *)routes[i]);
        pj_strdup_with_null(acc->pool, &text, &given);
        pjsip_route_hdr *route = pjsip_parse_hdr(acc->pool, &name, text.ptr, (pj_size_t)text.slen, NULL);
        if (!route)
            return PJSIP_EINVALIDHDR;
        pj_list_push_back(&set, route);
    }
    pj_list_init(&acc->route_set);
    pj_list_merge_last(&acc->route_set, &set);
    return PJ_SUCCESS;
}

pj_status_t account_set_route(pjsua_acc_id account, const char *const *routes, int count)
{
    char *text = joined(routes, count);
    if (!text)
        return PJ_ENOMEM;
    pj_status_t status = PJ_EINVAL;
    PJSUA_LOCK();
    if (pjsua_acc_is_valid(account)) {
        bool same = routes_of[account] && strcmp(routes_of[account], text) == 0;
        status = same ? PJ_SUCCESS : set_route(&pjsua_var.acc[account], routes, count);
        if (status == PJ_SUCCESS) {
            char *former = routes_of[account];
            routes_of[account] = text;
            text = former;
        }
    }
    PJSUA_UNLOCK();
    free(text);
    return status;
}

bool account_delete(pjsua_acc_id account)
{
    const pjsua_acc_del_param unless_busy = {.force = PJ_FALSE};
    pj_status_t status = PJ_SUCCESS;
    PJSUA_LOCK();
    if (pjsua_acc_is_valid(account))
        status = pjsua_acc_del2(account, &unless_busy);
    if (status != PJ_EBUSY) {
        free(routes_of[account]);
        routes_of[account] = NULL;
    }
    PJSUA_UNLOCK();
    return status != PJ_EBUSY;
}
