/* Compile-time limits of our PJSIP. Tables are sized for one server's calls with room to spare:
 * the ceilings that an operator sets are enforced by us, below these. */

#define PJ_HAS_IPV6 1
#define PJ_LOG_MAX_LEVEL 4

/* RTP and RTCP sockets of every call, both legs of a transfer, plus SIP connections. Needs the epoll back end. */
#define PJ_IOQUEUE_MAX_HANDLES 4096

/* Long Record-Route, Identity and SDP headers exceed the default of 4000; every message sent allocates this much. */
#define PJSIP_MAX_PKT_LEN 8000

/* Hash table sizes: a finished UDP transaction lingers for 32 s, so 100 calls/s keep about 10,000 of them. */
#define PJSIP_MAX_TSX_COUNT (16 * 1024 - 1)
#define PJSIP_MAX_DIALOG_COUNT (4 * 1024 - 1)
#define PJSIP_TCP_TRANSPORT_BACKLOG 128

/* RFC 3261 18.1.1 moves requests over 1300 bytes to TCP, which most carriers' UDP trunks do not answer. */
#define PJSIP_DONT_SWITCH_TO_TCP 1

#define PJSUA_MAX_CALLS 1024
/* One for each trunk that registers or has credentials. */
#define PJSUA_MAX_ACC 1024
#define PJSUA_MAX_PLAYERS 16
#define PJSUA_MAX_RECORDERS 16
#define PJSUA_MAX_CONF_PORTS (PJSUA_MAX_CALLS + 64)

#define PJMEDIA_HAS_VIDEO 0

/* Keys by DTLS (RFC 5763), beside those in the SDP (RFC 4568). */
#define PJMEDIA_SRTP_HAS_DTLS 1

/* Otherwise any host that sends RTP to a call's port takes over its audio within 25 ms. */
#define PJMEDIA_TRANSPORT_SWITCH_REMOTE_ADDR 0

/* How far the RTP clock moves behind each key that is sent as RFC 4733 events: the length that
 * sipcore/native/pump/dtmf_sender.c gives them. The default of 200 would let it run ahead by 100 ms a key. */
#define PJMEDIA_DTMF_DURATION_MSEC 100

/* Else the start waits for a resolver to know the machine's own name, which it often does not, or not soon. */
#define PJ_GETHOSTIP_DISABLE_LOCAL_RESOLUTION 1
