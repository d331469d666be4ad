/* The jitter buffer of a slot's stream, as far as the pump reads and shortens it. PJMEDIA discards audio that has become
 * superfluous except for the last frame; a bridged call, which has the delay of two networks, cannot spare its 10 or 20 ms. */
#ifndef TRUNKLINE_PUMP_JITTER_BUFFER_H
#define TRUNKLINE_PUMP_JITTER_BUFFER_H

#include <stdint.h>

#include <pjsua-lib/pjsua.h>

#include "rtp/rtp_stats.h"

typedef struct jitter_buffer {
    uint32_t frame_ms;          /* duration of one frame */
    unsigned counted, removed;  /* discarded frames that the statistics count, and frames that the pump has removed */
    unsigned reads, least, window;
} jitter_buffer_t;

/* Another stream begins. */
void jitter_buffer_begin(jitter_buffer_t *buffer, const pjmedia_stream_info *info);
/* Adds the buffer's delay and its discarded frames to the statistics. */
void jitter_buffer_count(jitter_buffer_t *buffer, pjmedia_stream *stream, rtp_stats_t *stats);
/* Superfluous frames are removed soon if there are any. */
void jitter_buffer_watch(jitter_buffer_t *buffer);
/* How many frames are superfluous, after a read that has left `left`: those that each read has left for some time. `quiet`: the
 * read audio is silence, in which their removal is not heard. */
unsigned jitter_buffer_excess(jitter_buffer_t *buffer, unsigned left, bool quiet);
/* After the read of audio that has left `left` frames: removes those that are superfluous, preferably in silence. */
void jitter_buffer_shorten(jitter_buffer_t *buffer, pjmedia_stream *stream, unsigned left, const int16_t *read, uint32_t count);

#endif
