/* Dialog record: what another process needs to end a dialog of this one, without any secret. */
#ifndef TRUNKLINE_SIP_DIALOG_RECORD_H
#define TRUNKLINE_SIP_DIALOG_RECORD_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

#define DIALOG_RECORD_TEXT_SIZE 1024
#define DIALOG_RECORD_MAX_ROUTES 16

/* Texts of an unanswered INVITE of ours, which only a CANCEL ends: it repeats the INVITE's Via and goes where that went (RFC
 * 3261 9.1). `branch` "": the dialog is answered, or about to be, and a BYE ends it. */
typedef struct dialog_record_invite {
    char branch[256];
    char sent_by[PJ_INET6_ADDRSTRLEN + 10];
    char transport[8];                       /* UDP, TCP or TLS */
    char address[PJ_INET6_ADDRSTRLEN + 10];  /* of the first hop, with its port */
    char server_name[256];                   /* the host name that a TLS certificate is verified for */
} dialog_record_invite_t;

typedef struct dialog_record {
    char call_id[DIALOG_RECORD_TEXT_SIZE];
    char local[DIALOG_RECORD_TEXT_SIZE], local_tag[DIALOG_RECORD_TEXT_SIZE];
    char remote[DIALOG_RECORD_TEXT_SIZE], remote_tag[DIALOG_RECORD_TEXT_SIZE];
    char target[DIALOG_RECORD_TEXT_SIZE];    /* the request URI */
    unsigned cseq;                           /* of the INVITE; else the next one of ours */
    int route_count;
    char route[DIALOG_RECORD_MAX_ROUTES][DIALOG_RECORD_TEXT_SIZE];
    dialog_record_invite_t invite;
} dialog_record_t;

/* False if no request of ours could end the call now, or if a text is too long. */
bool dialog_record_of(pjsua_call_id call, dialog_record_t *record);

#endif
