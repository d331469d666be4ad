#include "pump/receiver_report.h"

#define INTERVAL_NS 2000000000LL

void receiver_report_send(pjmedia_stream *stream, int64_t last_packet_ns, int64_t now_ns, int64_t *sent_ns)
{
    pjmedia_stream_info info;
    if (now_ns - last_packet_ns < INTERVAL_NS || now_ns - *sent_ns < INTERVAL_NS)
        return;
    *sent_ns = now_ns;
    if (pjmedia_stream_get_info(stream, &info) == PJ_SUCCESS && info.dir == PJMEDIA_DIR_DECODING)
        pjmedia_stream_send_rtcp_sdes(stream);
}
