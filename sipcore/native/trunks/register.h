/* REGISTER, one at a time for each account: sends it along the account's Route set, answers its challenges and reports its
 * outcome. Python decides when. */
#ifndef TRUNKLINE_TRUNKS_REGISTER_H
#define TRUNKLINE_TRUNKS_REGISTER_H

#include <pjsua-lib/pjsua.h>

/* Parameters of one REGISTER. URIs as in headers, "" for none. */
typedef struct register_params {
    pjsua_acc_id account;
    long long token;            /* repeated in the outcome */
    const char *registrar;      /* request URI */
    const char *aor;            /* To and From */
    const char *contact;        /* "": from the account's address on the route to the registrar */
    const char *former;         /* a Contact to remove, unless it is the same; "": none */
    const char *call_id;
    unsigned cseq;              /* answers to challenges take the next REGISTER_MAX_CHALLENGES numbers */
    unsigned expires_s;         /* 0 removes the contact */
    const char *user, *password;
} register_params_t;

enum { REGISTER_MAX_CHALLENGES = 3 };

enum register_outcome_kind {
    REGISTER_ANSWERED,          /* final response with status `code` */
    REGISTER_NO_RESPONSE,       /* no final response */
    REGISTER_UNRESOLVED,        /* the host's address is not known */
    REGISTER_UNREACHABLE,       /* no connection */
    REGISTER_NO_CREDENTIALS,    /* a challenge without credentials for it; `code` is 401 or 407 */
};

typedef struct register_outcome {
    long long token;
    enum register_outcome_kind kind;
    int code;
    char reason[256];           /* reason phrase of the response, else the failure */
    char source[PJ_INET6_ADDRSTRLEN + 2];
    unsigned expires_s;         /* granted to our Contact, 0 if it is not bound */
    int retry_after_s;          /* -1: the response has none */
    int min_expires_s;          /* -1: the response has none */
} register_outcome_t;

/* On PJSIP's threads. */
typedef void register_callback_t(const register_outcome_t *outcome);

int register_install(register_callback_t *on_outcome);
void register_remove(void);
/* `contact` receives the Contact that was sent. An error: nothing was sent, and no outcome will be reported. */
pj_status_t register_send(const register_params_t *params, char *contact, size_t size);
/* Stops waiting for the response: the outcome will be REGISTER_NO_RESPONSE. */
void register_abandon(pjsua_acc_id account);
/* The account is about to be deleted: nothing more is reported, and its connection is released. */
void register_drop(pjsua_acc_id account);

#endif
