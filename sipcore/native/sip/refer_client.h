/* Outbound REFER within a call (RFC 3515): we ask the peer to call another party, and follow the subscription that this
 * creates. */
#ifndef TRUNKLINE_SIP_REFER_CLIENT_H
#define TRUNKLINE_SIP_REFER_CLIENT_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

#define REFER_CLIENT_MAX_HEADERS 16
#define REFER_CLIENT_ID_SIZE 1024

typedef struct refer_client_header {
    const char *name, *value;
} refer_client_header_t;

typedef struct refer_client_dialog_id {
    char call_id[REFER_CLIENT_ID_SIZE], local_tag[REFER_CLIENT_ID_SIZE], remote_tag[REFER_CLIENT_ID_SIZE];
} refer_client_dialog_id_t;

/* `user` "": the REFER has no credentials beside those of the call's account. */
typedef struct refer_client_params {
    pjsua_call_id call;
    long long token;            /* identifies the REFER in the callbacks; not 0 */
    int header_count;
    refer_client_header_t headers[REFER_CLIENT_MAX_HEADERS];
    const char *user, *password;
} refer_client_params_t;

/* The body and its type as received; they are only valid during the callback. */
typedef struct refer_client_notify {
    long long token;
    bool terminated;            /* the subscription ends with this NOTIFY */
    pj_str_t type, subtype, body;
} refer_client_notify_t;

/* Both are called with the dialog locked. `status` is 0 when the REFER got no response. */
typedef void refer_client_response_callback_t(long long token, int status);
typedef void refer_client_notify_callback_t(const refer_client_notify_t *notify);

int refer_client_install(refer_client_response_callback_t *on_response, refer_client_notify_callback_t *on_notify);
void refer_client_remove(void);

/* Call-ID and tags of an answered call's dialog. False if there is none, or if one of them is too long. */
bool refer_client_dialog_id(pjsua_call_id call, refer_client_dialog_id_t *id);
/* Sends REFER in the dialog of an answered call. An error: nothing was sent, and nothing will be reported. */
pj_status_t refer_client_send(const refer_client_params_t *params);
/* Reports nothing more of this REFER; one without a response is not retransmitted any more. */
void refer_client_end(pjsua_call_id call, long long token);
/* Responds with 200 to a NOTIFY about a REFER of ours, also a late one: PJSIP's peers end the whole call after a 481. False
 * for another request. */
bool refer_client_handle_notify(pjsip_rx_data *rdata);

#endif
