/* One REGISTER at a time for each account: sent along its routes, its challenges answered, its outcome reported. When to send is not
 * decided here. */
#ifndef TRUNKLINE_REGISTRATION_REGISTER_H
#define TRUNKLINE_REGISTRATION_REGISTER_H

#include <pjsua-lib/pjsua.h>

/* What an account registers, and with whom. URIs as in headers, "" where there is none. */
typedef struct register_order {
    pjsua_acc_id account;
    long long token;            /* comes back with the outcome */
    const char *registrar;      /* request URI */
    const char *aor;            /* To and From */
    const char *contact;        /* "": by the account's address on the way to the registrar */
    const char *former;         /* a Contact that is taken away unless it is the same; "": none */
    const char *call_id;
    unsigned cseq;              /* answers to challenges take the numbers behind it, REGISTER_MAX_CHALLENGES of them at most */
    unsigned expires_s;         /* 0 removes the contact */
    const char *user, *password;
} register_order_t;

enum { REGISTER_MAX_CHALLENGES = 3 };

enum register_end {
    REGISTER_ANSWERED,          /* `code` says how */
    REGISTER_NO_RESPONSE,           /* no final response */
    REGISTER_UNRESOLVED,        /* the host's address is not known */
    REGISTER_UNREACHABLE,       /* no connection */
    REGISTER_NO_CREDENTIALS,      /* a challenge that we have no answer to; `code` is 401 or 407 */
};

typedef struct register_outcome {
    long long token;
    enum register_end end;
    int code;
    char reason[256];           /* of the response; else what went wrong */
    char source[PJ_INET6_ADDRSTRLEN + 2];
    unsigned expires_s;         /* granted for our contact, 0 when it is not bound */
    int retry_after_s;          /* -1: not said */
    int min_expires_s;          /* -1: not said */
} register_outcome_t;

/* On PJSIP's threads. */
typedef void register_callback_t(const register_outcome_t *outcome);

int register_install(register_callback_t *tell);
void register_remove(void);
/* `contact` receives the Contact that was sent. An error: nothing was sent and no outcome will come. */
pj_status_t register_send(const register_order_t *order, char *contact, size_t size);
/* Wait no longer for an answer: its outcome is REGISTER_NO_RESPONSE, soon. */
void register_abandon(pjsua_acc_id account);
/* The account is about to go: report nothing more of it, let go of its connection. */
void register_drop(pjsua_acc_id account);

#endif
