#include "pump/packet_arrival.h"

int64_t packet_arrival_ns(pjmedia_stream *stream, int64_t now_ns)
{
    pjmedia_stream_rtp_sess_info session;
    pj_timestamp now;
    if (pjmedia_stream_get_rtp_session_info(stream, &session) != PJ_SUCCESS || !session.rtcp->transit)
        return now_ns;
    pj_get_timestamp(&now);
    uint32_t units = (uint32_t)(now.u64 * session.rtcp->clock_rate / session.rtcp->ts_freq.u64);
    uint32_t age = units - ((uint32_t)session.rtcp->transit + session.rtcp->rtp_last_ts);
    int64_t age_ns = (int64_t)age * 1000000000LL / session.rtcp->clock_rate;
    return age_ns < ARRIVAL_LIMIT_NS ? now_ns - age_ns : now_ns;
}
