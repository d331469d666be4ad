/* PJSUA behind our guard, without sockets: what is sent is counted and dropped. Started once per process. */
#ifndef TRUNKLINE_FUZZ_STACK_H
#define TRUNKLINE_FUZZ_STACK_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trunks/register.h"

/* Replaced in an input by the local tag of the only dialog; as long as PJSIP's own tags. */
#define LOCAL_TAG "the-tag-that-this-end-has-chosen-xxx"
/* Of that dialog, and of its first request. */
#define CALL_ID "the-call"
#define REMOTE_TAG "theirs"
#define BRANCH "z9hG4bK-of-the-call"

/* Source addresses of messages. */
#define KNOWN_ADDRESS "127.0.0.1"
#define PROBE_ADDRESS "127.0.0.2"
#define UNKNOWN_ADDRESS "127.0.0.3"
#define PEER_ADDRESS "127.0.0.4"        /* unknown; the call is with it */

/* Networks that may receive media, and that may not. */
#define ALLOWED_NETWORK "192.0.2.0/24"
#define FORBIDDEN_NETWORK "203.0.113.0/24"

/* Results of a packet. */
typedef struct seen {
    int admitted;               /* messages that the guard admitted */
    int sent;
    size_t longest_sent;        /* bytes */
} seen_t;

void stack_start(void);
/* Receives a packet of `size` bytes over UDP, or over a connection. */
seen_t stack_receive(const uint8_t *data, size_t size, const char *source, bool stream);
/* Responses reach their transactions; new transactions end by `stack_end_transactions` only. */
void stack_admit_responses(void);
void stack_end_transactions(void);
/* The latest message that we have sent, as text. */
const char *stack_last_sent(void);
/* Receives the outcomes of registrations, unless NULL. */
extern void (*stack_on_outcome)(const register_outcome_t *outcome);
/* A pool for one input; the next call resets it. */
pj_pool_t *stack_pool(void);
/* Aborts the process if an invariant does not hold: a crash for the fuzzer. */
void must(bool holds, const char *what);

#endif
