/* A copy of every SIP message of known peers, as it stood on the wire, for whoever asks why something happened. */
#ifndef TRUNKLINE_NET_MESSAGE_TAP_H
#define TRUNKLINE_NET_MESSAGE_TAP_H

#include <stdbool.h>
#include <stdint.h>

#include <pjsua-lib/pjsua.h>

#define TAP_RING (4u << 20)        /* bytes that wait for the reader; what is older than they are is lost */
#define TAP_CALL_ID 512            /* the longest of each kind that is kept */
#define TAP_TAG 128
#define TAP_METHOD 24
#define TAP_TEXT 16384

/* In front of each message; behind it come, without terminators, Call-ID, From tag, To tag, method and text. */
typedef struct tap_facts {
    uint32_t size;                 /* of the record, a multiple of 8; 0: the ring goes on at its beginning */
    uint32_t text;                 /* lengths in bytes */
    uint16_t call_id, from_tag, to_tag, method;
    int64_t at_ns;                 /* CLOCK_REALTIME */
    uint32_t cseq;
    uint16_t status;               /* 0: a request */
    uint16_t our_port, peer_port;
    bool sent, with_sdp;
    char transport[8];
    char ours[PJ_INET6_ADDRSTRLEN], peer[PJ_INET6_ADDRSTRLEN];
} tap_facts_t;

int tap_install(void);
void tap_remove(void);
/* The guard lets this message in. */
void tap_received(pjsip_rx_data *rdata);
/* While muted, what this thread sends is not copied: answers to strangers. */
void tap_mute(bool muted);
/* Readable when there is something to take after `tap_take` has found nothing more; -1: not installed. */
int tap_descriptor(void);
/* Move whole records, oldest first, into `out`; returns their bytes. `*lost` counts all that were never taken. */
uint32_t tap_take(uint8_t *out, uint32_t room, uint64_t *lost);

#endif
