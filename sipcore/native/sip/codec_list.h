/* The codecs of a dialog: those that its trunk takes, in place of all that the endpoint has. */
#ifndef TRUNKLINE_SIP_CODEC_LIST_H
#define TRUNKLINE_SIP_CODEC_LIST_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

/* Codecs, preferred first: a byte for each from the lowest on, 0 after the last. 0: all of the endpoint. */
typedef pj_uint32_t codec_list_t;

/* Adds a codec at the end: "opus", "G722", "PCMU" or "PCMA", each once. False for another name. */
bool codec_list_add(codec_list_t *list, const char *name);

/* With PJSUA; the lists end with their dialogs. */
int codec_list_install(void);
void codec_list_remove(void);
/* The list of the dialogs whose INVITEs this thread sends from now on. */
void codec_list_of_next_invites(codec_list_t list);
/* Gives the dialog of an inbound call that has not been answered a list. `offered`: false if the call's offer has none of
 * its codecs, so that no answer is possible. */
pj_status_t codec_list_limit(pjsua_call_id call, codec_list_t list, bool *offered);
/* Hooks the callback of INVITEs with Replaces (RFC 3891): their dialog has the list of the one that it replaces. */
void codec_list_hook(pjsua_callback *callback);
/* PJSUA's `on_call_sdp_created`: leaves the dialog's codecs in an offer or an answer, in its order. Telephone events stay
 * with the clock rates of these codecs (RFC 4733, 2.1), and other payload types, such as comfort noise, as they are. */
void codec_list_on_sdp_created(pjsua_call_id call, pjmedia_sdp_session *sdp);

#endif
