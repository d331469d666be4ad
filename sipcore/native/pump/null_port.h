/* The port that replaces a stream in PJSUA's conference bridge, and keeps it for its slot. */
#ifndef TRUNKLINE_PUMP_NULL_PORT_H
#define TRUNKLINE_PUMP_NULL_PORT_H

#include "pump/slot.h"

typedef struct null_port {
    pjmedia_port base;
    pj_pool_t *pool;
    pthread_mutex_t *open_lock;     /* guards which slot has which stream */
    slot_t *slot;
    pjmedia_port *stream_port;      /* referenced, so that its address names no other stream while we compare it */
} null_port_t;

/* NULL without memory. */
null_port_t *null_port_create(slot_t *slot, pjmedia_port *stream_port, pthread_mutex_t *open_lock);

#endif
