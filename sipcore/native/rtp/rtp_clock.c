#include "rtp/rtp_clock.h"

/* G.722's RTP clock runs at half its sampling rate (RFC 3551, 4.5.2), Opus's at 48 kHz whatever its rate (RFC 7587, 4.1). */
uint32_t rtp_clock_of(const pjmedia_stream_info *info)
{
    if (info->fmt.pt == PJMEDIA_RTP_PT_G722)
        return 8000;
    return pj_stricmp2(&info->fmt.encoding_name, "opus") == 0 ? 48000 : info->fmt.clock_rate;
}

void rtp_clock_for_rtcp(pjmedia_stream *stream, uint32_t clock_rate)
{
    pjmedia_stream_rtp_sess_info session;
    if (pjmedia_stream_get_rtp_session_info(stream, &session) == PJ_SUCCESS)
        ((pjmedia_rtcp_session *)session.rtcp)->clock_rate = clock_rate;
}
