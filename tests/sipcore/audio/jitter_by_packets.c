/* PJMEDIA's jitter buffer with the pump's part of it, without a stream: test_jitter_buffer.py puts packets of two frames of
 * 10 ms, as G.711 has them, and reads as many frames each tick. */
#include "pump/jitter_buffer.h"

#include <stdlib.h>
#include <string.h>

#define FRAMES_OF_PACKET 2
#define FRAME_SIZE 80
#define MAX_FRAMES 50

typedef struct buffered {
    pj_caching_pool pools;
    pjmedia_stream_common stream;
    jitter_buffer_t buffer;
    rtp_stats_t *stats;
    int next;
} buffered_t;

buffered_t *create(void)
{
    buffered_t *made = calloc(1, sizeof *made);
    const pj_str_t name = pj_str("test");
    pj_caching_pool_init(&made->pools, NULL, 0);
    pj_pool_t *pool = pj_pool_create(&made->pools.factory, "test", 4000, 4000, NULL);
    pj_mutex_create_simple(pool, "test", &made->stream.jb_mutex);
    pjmedia_jbuf_create(pool, &name, FRAME_SIZE, 10, MAX_FRAMES, &made->stream.jb);
    pjmedia_jbuf_set_adaptive(made->stream.jb, 0, 1, MAX_FRAMES * 4 / 5);
    made->buffer.frame_ms = 10;
    made->stats = rtp_stats_create();
    jitter_buffer_watch(&made->buffer);
    return made;
}

void drop(buffered_t *made)
{
    pjmedia_jbuf_destroy(made->stream.jb);
    pj_mutex_destroy(made->stream.jb_mutex);
    pj_caching_pool_destroy(&made->pools);
    rtp_stats_release(made->stats);
    free(made);
}

void put_packet(buffered_t *made)
{
    const char frame[FRAME_SIZE] = {0};
    for (int i = 0; i < FRAMES_OF_PACKET; i++)
        pjmedia_jbuf_put_frame(made->stream.jb, frame, sizeof frame, made->next++);
}

/* A tick. Returns how many frames it has left. */
int tick(buffered_t *made, int bridged, int16_t level)
{
    char frame[FRAME_SIZE], type;
    int16_t audio[FRAMES_OF_PACKET * FRAME_SIZE];
    pjmedia_jb_state state;
    for (int i = 0; i < FRAMES_OF_PACKET; i++)
        pjmedia_jbuf_get_frame(made->stream.jb, frame, &type);
    for (int i = 0; i < FRAMES_OF_PACKET * FRAME_SIZE; i++)
        audio[i] = level;
    pjmedia_jbuf_get_state(made->stream.jb, &state);
    if (bridged)
        jitter_buffer_shorten(&made->buffer, (pjmedia_stream *)&made->stream, state.size, audio, FRAMES_OF_PACKET * FRAME_SIZE);
    pjmedia_jbuf_get_state(made->stream.jb, &state);
    return (int)state.size;
}

double discarded_ms(buffered_t *made)
{
    jitter_buffer_count(&made->buffer, (pjmedia_stream *)&made->stream, made->stats);
    return rtp_stats_totals(made->stats).discarded_ms;
}
