/* Message tap: copies every SIP message from and to known peers, as it was on the wire, for the SIP capture. */
#ifndef TRUNKLINE_NET_MESSAGE_TAP_H
#define TRUNKLINE_NET_MESSAGE_TAP_H

#include <stdbool.h>
#include <stdint.h>

#include <pjsua-lib/pjsua.h>

#define TAP_RING_SIZE (4u << 20)    /* bytes; the oldest messages are overwritten */
#define TAP_MAX_CALL_ID 512         /* bytes; longer values are cut, here and below */
#define TAP_MAX_TAG 128
#define TAP_MAX_METHOD 24
#define TAP_MAX_TEXT 16384

/* Header of a record. Call-ID, From tag, To tag, method and text follow it, without terminators. */
typedef struct tap_header {
    uint32_t size;                 /* of the record, a multiple of 8; 0: the next record is at the ring's beginning */
    uint32_t text;                 /* lengths in bytes */
    uint16_t call_id, from_tag, to_tag, method;
    int64_t at_ns;                 /* CLOCK_REALTIME */
    uint32_t cseq;
    uint16_t status;               /* 0: a request */
    uint16_t local_port, peer_port;
    bool sent, with_sdp;
    char transport[8];
    char local[PJ_INET6_ADDRSTRLEN], peer[PJ_INET6_ADDRSTRLEN];
} tap_header_t;

int tap_install(void);
void tap_remove(void);
/* To be called for each received message that the guard admits. */
void tap_received(pjsip_rx_data *rdata);
/* While muted, messages that this thread sends are not copied: responses to unknown sources. */
void tap_mute(bool muted);
/* A file descriptor, readable when records came after `tap_read` had returned 0; -1: not installed. */
int tap_descriptor(void);
/* Moves whole records, oldest first, into `out` and returns their bytes. `*lost` counts all records that were overwritten
 * since tap_install. */
uint32_t tap_read(uint8_t *out, uint32_t room, uint64_t *lost);

#endif
