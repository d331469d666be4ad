/* CLOCK_MONOTONIC as one number. */
#ifndef TRUNKLINE_NET_MONOTONIC_CLOCK_H
#define TRUNKLINE_NET_MONOTONIC_CLOCK_H

#include <stdint.h>

/* Nanoseconds. */
int64_t monotonic_ns(void);
/* Milliseconds. */
int64_t monotonic_ms(void);

#endif
