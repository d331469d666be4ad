#include "pump/jitter_buffer.h"

#include "pump/tick.h"

#define FIRST_READS 10      /* in which a frame must stay unused to be superfluous; */
#define MAX_READS 640       /* twice as many each time, so that networks with jitter soon keep what they need */
#define MAX_WAIT_READS 250  /* for silence */
#define QUIET 100u          /* mean absolute sample: noise of a line, about -50 dBFS */

/* PJMEDIA's G.711 and G.722 keep 10 ms frames in the jitter buffer, whatever the packets hold. */
void jitter_buffer_begin(jitter_buffer_t *buffer, const pjmedia_stream_info *info)
{
    const bool known = info && info->param && info->param->info.frm_ptime;
    *buffer = (jitter_buffer_t){.frame_ms = known ? info->param->info.frm_ptime : TICK_MS};
    jitter_buffer_watch(buffer);
}

void jitter_buffer_count(jitter_buffer_t *buffer, pjmedia_stream *stream, rtp_stats_t *stats)
{
    pjmedia_jb_state state;
    if (pjmedia_stream_get_stat_jbuf(stream, &state) != PJ_SUCCESS)
        return;
    const unsigned discarded = state.discard + buffer->removed - buffer->counted;
    buffer->counted = state.discard + buffer->removed;
    rtp_stats_jitter_buffer(stats, state.avg_delay, discarded * (double)buffer->frame_ms);
}

void jitter_buffer_watch(jitter_buffer_t *buffer)
{
    buffer->reads = 0;
    buffer->window = FIRST_READS;
}

unsigned jitter_buffer_excess(jitter_buffer_t *buffer, unsigned left, bool quiet)
{
    buffer->least = buffer->reads && buffer->least < left ? buffer->least : left;
    if (++buffer->reads < buffer->window)
        return 0;
    if (buffer->least && !quiet && buffer->reads < buffer->window + MAX_WAIT_READS)
        return 0;
    buffer->reads = 0;
    buffer->window = buffer->window * 2 < MAX_READS ? buffer->window * 2 : MAX_READS;
    return buffer->least;
}

static bool is_quiet(const int16_t *audio, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += (uint64_t)(audio[i] < 0 ? -audio[i] : audio[i]);
    return sum <= (uint64_t)count * QUIET;
}

void jitter_buffer_shorten(jitter_buffer_t *buffer, pjmedia_stream *stream, unsigned left, const int16_t *read, uint32_t count)
{
    const unsigned excess = jitter_buffer_excess(buffer, left, is_quiet(read, count));
    if (!excess)
        return;
    pjmedia_stream_common *common = (pjmedia_stream_common *)stream;
    pj_mutex_lock(common->jb_mutex);
    buffer->removed += pjmedia_jbuf_remove_frame(common->jb, excess);
    pj_mutex_unlock(common->jb_mutex);
}
