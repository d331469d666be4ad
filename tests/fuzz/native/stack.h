/* PJSUA with our guard in front of it, and no socket: what is sent is counted and thrown away. Begun once a process. */
#ifndef TRUNKLINE_FUZZ_STACK_H
#define TRUNKLINE_FUZZ_STACK_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "registration/register.h"

/* Stands in an input for the local tag of the one dialog that there is; as long as PJSIP's own tags. */
#define LOCAL_TAG "the-tag-that-this-end-has-chosen-xxx"
/* Of that dialog, and of the request that has begun it. */
#define CALL_ID "the-call"
#define REMOTE_TAG "theirs"
#define BRANCH "z9hG4bK-of-the-call"

/* Addresses that a message can come from. */
#define KNOWN_ADDRESS "127.0.0.1"
#define PROBE_ADDRESS "127.0.0.2"
#define STRANGE_ADDRESS "127.0.0.3"
#define PEER_ADDRESS "127.0.0.4"        /* unknown; the call is with it */

/* Where sound may go besides, and where it may not. */
#define ALLOWED_NETWORK "192.0.2.0/24"
#define NEVER_NETWORK "203.0.113.0/24"

/* What became of a packet. */
typedef struct seen {
    int let_in;                 /* messages that would have gone on to transactions and calls */
    int sent;
    size_t longest_sent;        /* bytes */
} seen_t;

void stack_start(void);
/* A packet of `size` bytes comes over UDP, or over a connection. */
seen_t stack_receive(const uint8_t *data, size_t size, const char *source, bool stream);
/* Responses go on to the transactions that they are for; what they begin ends by `stack_end_transactions` only. */
void stack_let_responses_in(void);
void stack_end_transactions(void);
/* The latest message that we have sent, as text. */
const char *stack_last_sent(void);
/* Hears of our registrations, unless NULL. */
extern void (*stack_on_outcome)(const register_outcome_t *outcome);
/* A pool for what an input needs; it is emptied by the next call. */
pj_pool_t *stack_pool(void);
/* Ends the process where an invariant does not hold: what a fuzzer takes for a crash. */
void must(bool holds, const char *what);

#endif
