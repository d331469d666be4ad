#define _GNU_SOURCE
#include "rtp/rtp_reader.h"

#include "net/monotonic_clock.h"
#include "net/realtime_thread.h"
#include "rtp/dtls_worker.h"
#include "rtp/icmp_errors.h"
#include "rtp/reading_times.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <pjsua-lib/pjsua.h>

#define MAX_READERS (4 * PJSUA_MAX_CALLS)   /* a call has a second transport while a re-INVITE replaces the first */
#define PACKET_SIZE 2000
#define MAX_DTLS_PACKETS 32                 /* of one transport that wait for their thread; a flight has fewer */
#define BATCH 8
#define MAX_BATCHES 4                       /* of one socket, until the other sockets have their turn */
#define MAX_EVENTS 64
#define NO_READER (-1)
#define MAX_AGE_NS 1000000000LL             /* an older arrival is that of a clock that was set */
#define MIN_WAIT_NS 10000LL                 /* 0 would stop the timer, also after its division by the speed of a test's clock */
#define TIMER UINT64_MAX
#define PRIORITY 9                          /* one below the pump's */

typedef struct packet {
    struct packet *next;
    bool is_rtcp;
    pj_sockaddr source;
    int64_t arrival_ns;
    unsigned size;
    _Alignas(8) uint8_t bytes[];
} packet_t;

typedef struct reader {
    pjmedia_transport_op op;        /* the transport's operations with ours in front */
    pjmedia_transport_op *below;
    _Atomic int refs;               /* the transport's, and those of the threads while they read or deliver */
    rtp_stats_t *stats;
    _Atomic int phase;              /* of the ticks before which RTP is read */
    dtls_job_t job;                 /* delivers `dtls` */
    pthread_mutex_t delivery;       /* recursive; held while packets are read and delivered. The thread that reads never waits
                                     * for it: a handshake holds it, and PJMEDIA's lock of the transport, for long */

    pthread_mutex_t lock;           /* guards what follows; no callback runs while it is held */
    int index;                      /* in `table`; -1: the sockets are not read */
    pj_sock_t rtp, rtcp;            /* PJ_INVALID_SOCKET from the transport's end on */
    pj_grp_lock_t *group;
    int family;                     /* of the sockets */
    pjmedia_transport_attach_param user;
    pj_sockaddr rtp_source, rtcp_source, rtp_target, rtcp_target;
    bool rtcp_came;                 /* else the peer's RTCP port may always have been closed, as that of many phones is */
    packet_t *dtls;                 /* packets that wait: those of the RTP port, then those of the RTCP port */
    int dtls_count;
    bool dtls_posted;
} reader_t;

typedef struct batch {
    struct mmsghdr messages[BATCH];
    struct iovec vectors[BATCH];
    pj_sockaddr sources[BATCH];
    uint8_t packets[BATCH][PACKET_SIZE];
    union {
        char bytes[CMSG_SPACE(sizeof(struct timespec))];
        struct cmsghdr aligned;
    } control[BATCH];
} batch_t;

static struct {
    pthread_mutex_t lock;           /* guards `table` and `high` */
    reader_t *table[MAX_READERS];
    int high;
    int epoll, timer;
    reading_times_t times;          /* the thread's */
    _Atomic int64_t read_until_ns;  /* no reading is left to do for ticks up to this time */
    pthread_mutex_t wait_lock;
    pthread_cond_t has_read;
    _Atomic bool running;
    pthread_t thread;
} all = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .epoll = -1,
    .timer = -1,
    .wait_lock = PTHREAD_MUTEX_INITIALIZER,
    .has_read = PTHREAD_COND_INITIALIZER,
};

/* The thread's: indices of the readers of each phase. */
static struct {
    int16_t first[READING_PHASES], next[MAX_READERS];
} groups;

static __thread int64_t arrival_ns;

int64_t rtp_reader_arrival_ns(void)
{
    return arrival_ns ? arrival_ns : monotonic_ns();
}

static void release(reader_t *reader)
{
    if (atomic_fetch_sub(&reader->refs, 1) > 1)
        return;
    for (packet_t *packet; (packet = reader->dtls);) {
        reader->dtls = packet->next;
        free(packet);
    }
    rtp_stats_release(reader->stats);
    pthread_mutex_destroy(&reader->delivery);
    pthread_mutex_destroy(&reader->lock);
    free(reader);
}

/* ---- which sockets are read ---- */

/* A socket wakes the thread once, until it is watched again: that of RTCP is after each event, and both are when DTLS packets
 * have been processed. */
static int watch(int operation, pj_sock_t socket, int index, bool is_rtcp)
{
    struct epoll_event event = {
        .events = EPOLLIN | EPOLLONESHOT,
        .data.u64 = (uint64_t)index << 1 | is_rtcp,
    };
    return epoll_ctl(all.epoll, operation, (int)socket, &event);
}

/* Both locks are held. */
static bool add(reader_t *reader)
{
    for (int i = 0; i < MAX_READERS; i++) {
        if (all.table[i])
            continue;
        if (watch(EPOLL_CTL_ADD, reader->rtcp, i, true) != 0)
            return false;
        if (watch(EPOLL_CTL_ADD, reader->rtp, i, false) != 0) {
            epoll_ctl(all.epoll, EPOLL_CTL_DEL, (int)reader->rtcp, NULL);
            return false;
        }
        all.table[i] = reader;
        reader->index = i;
        all.high = i >= all.high ? i + 1 : all.high;
        return true;
    }
    return false;
}

static void stop(reader_t *reader, bool and_detach)
{
    pthread_mutex_lock(&all.lock);
    pthread_mutex_lock(&reader->lock);
    if (reader->index >= 0) {
        epoll_ctl(all.epoll, EPOLL_CTL_DEL, (int)reader->rtcp, NULL);
        epoll_ctl(all.epoll, EPOLL_CTL_DEL, (int)reader->rtp, NULL);
        all.table[reader->index] = NULL;
        reader->index = -1;
    }
    if (and_detach)
        pj_bzero(&reader->user, sizeof reader->user);
    pthread_mutex_unlock(&reader->lock);
    pthread_mutex_unlock(&all.lock);
    pthread_mutex_lock(&reader->delivery);
    pthread_mutex_unlock(&reader->delivery);
}

static reader_t *take(int index)
{
    pthread_mutex_lock(&all.lock);
    reader_t *reader = index < all.high ? all.table[index] : NULL;
    if (reader)
        atomic_fetch_add(&reader->refs, 1);
    pthread_mutex_unlock(&all.lock);
    return reader;
}

/* Once a period: lists the readers of each phase, of which the thread that reads needs no others. */
static void group_by_phase(void)
{
    for (int phase = 0; phase < READING_PHASES; phase++)
        groups.first[phase] = NO_READER;
    pthread_mutex_lock(&all.lock);
    for (int i = all.high - 1; i >= 0; i--) {
        if (!all.table[i])
            continue;
        const int phase = atomic_load(&all.table[i]->phase);
        groups.next[i] = groups.first[phase];
        groups.first[phase] = (int16_t)i;
    }
    pthread_mutex_unlock(&all.lock);
}

/* Bit n is set if phase n has sockets. */
static unsigned phases_in_use(void)
{
    unsigned phases = 0;
    for (int phase = 0; phase < READING_PHASES; phase++)
        phases |= (unsigned)(groups.first[phase] != NO_READER) << phase;
    return phases;
}

/* ---- the operations of a transport ---- */

static reader_t *reader_of(pjmedia_transport *tp)
{
    return tp->user_data;
}

static pj_status_t get_info(pjmedia_transport *tp, pjmedia_transport_info *info)
{
    reader_t *reader = reader_of(tp);
    pj_status_t status = reader->below->get_info(tp, info);
    pthread_mutex_lock(&reader->lock);
    pj_sockaddr_cp(&info->src_rtp_name, &reader->rtp_source);
    pj_sockaddr_cp(&info->src_rtcp_name, &reader->rtcp_source);
    pthread_mutex_unlock(&reader->lock);
    return status;
}

/* The lock is held. */
static void set_targets(reader_t *reader, const pjmedia_transport_attach_param *param)
{
    const int family = reader->family;
    pj_sockaddr_synthesize(family, &reader->rtp_target, &param->rem_addr);
    if (pj_sockaddr_has_addr(&param->rem_rtcp)) {
        pj_sockaddr_synthesize(family, &reader->rtcp_target, &param->rem_rtcp);
        return;
    }
    pj_sockaddr_cp(&reader->rtcp_target, &reader->rtp_target);
    pj_sockaddr_set_port(&reader->rtcp_target, (pj_uint16_t)(pj_sockaddr_get_port(&reader->rtp_target) + 1));
}

static pj_status_t attach2(pjmedia_transport *tp, pjmedia_transport_attach_param *param)
{
    reader_t *reader = reader_of(tp);
    pj_sockaddr rtcp_target;
    pj_status_t status = reader->below->attach2(tp, param);
    if (status != PJ_SUCCESS)
        return status;
    pthread_mutex_lock(&reader->lock);
    reader->user = *param;
    rtcp_target = reader->rtcp_target;
    set_targets(reader, param);
    if (pj_sockaddr_cmp(&rtcp_target, &reader->rtcp_target) != 0)
        reader->rtcp_came = false;
    pj_bzero(&reader->rtp_source, sizeof reader->rtp_source);
    pj_bzero(&reader->rtcp_source, sizeof reader->rtcp_source);
    pthread_mutex_unlock(&reader->lock);
    return PJ_SUCCESS;
}

static void detach(pjmedia_transport *tp, void *user)
{
    reader_t *reader = reader_of(tp);
    stop(reader, true);
    reader->below->detach(tp, user);
}

/* The operation below would let PJMEDIA's thread read the sockets. */
static pj_status_t media_start(pjmedia_transport *tp, pj_pool_t *pool, const pjmedia_sdp_session *local,
                               const pjmedia_sdp_session *remote, unsigned media)
{
    reader_t *reader = reader_of(tp);
    PJ_UNUSED_ARG(pool);
    PJ_UNUSED_ARG(local);
    PJ_UNUSED_ARG(remote);
    PJ_UNUSED_ARG(media);
    pthread_mutex_lock(&all.lock);
    pthread_mutex_lock(&reader->lock);
    const bool started = reader->index >= 0 || add(reader);
    pthread_mutex_unlock(&reader->lock);
    pthread_mutex_unlock(&all.lock);
    return started ? PJ_SUCCESS : PJ_ETOOMANY;
}

static pj_status_t media_stop(pjmedia_transport *tp)
{
    stop(reader_of(tp), false);
    return PJ_SUCCESS;
}

/* The lock is held. True if an ICMP error was the cause of a failure, which concerns another packet. */
static bool take_icmp_errors(reader_t *reader, bool is_rtcp)
{
    bool unreachable = false;
    const bool taken = icmp_errors_take(is_rtcp ? reader->rtcp : reader->rtp,
                                        is_rtcp ? &reader->rtcp_target : &reader->rtp_target, &unreachable);
    if (unreachable && (!is_rtcp || reader->rtcp_came))
        rtp_stats_unreachable(reader->stats, monotonic_ns());
    return taken;
}

/* DTLS sends its first packet before the sockets are read. A packet that the system does not take at once is lost. */
static pj_status_t send_packet(reader_t *reader, bool is_rtcp, const pj_sockaddr_t *to, const void *packet, pj_size_t size)
{
    pj_status_t status = PJ_SUCCESS;
    pthread_mutex_lock(&reader->lock);
    const pj_sockaddr_t *target = to ? to : is_rtcp ? &reader->rtcp_target : &reader->rtp_target;
    const bool muxed = pj_sockaddr_has_addr(&reader->rtp_target) &&
                       pj_sockaddr_cmp(&reader->rtp_target, &reader->rtcp_target) == 0; /* RFC 5761 */
    const bool by_rtcp = is_rtcp && !muxed;
    const int socket = (int)(by_rtcp ? reader->rtcp : reader->rtp), length = (int)pj_sockaddr_get_len(target);
    if (reader->rtp != PJ_INVALID_SOCKET && sendto(socket, packet, size, MSG_DONTWAIT, target, length) < 0) {
        int error = errno;
        if (error != EAGAIN && take_icmp_errors(reader, by_rtcp))
            error = sendto(socket, packet, size, MSG_DONTWAIT, target, length) < 0 ? errno : 0;
        status = !error || error == EAGAIN || error == ENOBUFS ? PJ_SUCCESS : PJ_STATUS_FROM_OS(error);
    }
    pthread_mutex_unlock(&reader->lock);
    return status;
}

static pj_status_t send_rtp(pjmedia_transport *tp, const void *packet, pj_size_t size)
{
    return send_packet(reader_of(tp), false, NULL, packet, size);
}

static pj_status_t send_rtcp2(pjmedia_transport *tp, const pj_sockaddr_t *to, unsigned length, const void *packet,
                              pj_size_t size)
{
    PJ_UNUSED_ARG(length);
    return send_packet(reader_of(tp), true, to, packet, size);
}

static pj_status_t send_rtcp(pjmedia_transport *tp, const void *packet, pj_size_t size)
{
    return send_packet(reader_of(tp), true, NULL, packet, size);
}

static pj_status_t destroy(pjmedia_transport *tp)
{
    reader_t *reader = reader_of(tp);
    stop(reader, true);
    pthread_mutex_lock(&reader->lock);
    reader->rtp = reader->rtcp = PJ_INVALID_SOCKET;
    pthread_mutex_unlock(&reader->lock);
    pj_status_t status = reader->below->destroy(tp);
    release(reader);
    return status;
}

void rtp_reader_pause(pjmedia_transport *udp)
{
    stop(reader_of(udp), false);
}

void rtp_reader_set_phase(pjmedia_transport *udp, int phase)
{
    atomic_store(&reader_of(udp)->phase, phase);
}

int64_t rtp_reader_lead_ns(int phase)
{
    return atomic_load(&all.times.lead_ns[phase]);
}

static void deliver_dtls(dtls_job_t *job);

bool rtp_reader_install(pjmedia_transport *udp, rtp_stats_t *stats)
{
    const int on = 1;
    pjmedia_transport_info info;
    pthread_mutexattr_t recursive;
    reader_t *reader = calloc(1, sizeof *reader);
    if (!reader)
        return false;
    pjmedia_transport_info_init(&info);
    pjmedia_transport_get_info(udp, &info);
    reader->rtp = info.sock_info.rtp_sock;
    reader->rtcp = info.sock_info.rtcp_sock;
    reader->family = info.sock_info.rtp_addr_name.addr.sa_family;
    setsockopt((int)reader->rtp, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    setsockopt((int)reader->rtcp, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    icmp_errors_enable(reader->rtp, reader->family);
    icmp_errors_enable(reader->rtcp, reader->family);
    reader->stats = rtp_stats_add_ref(stats);
    reader->index = -1;
    reader->group = udp->grp_lock;
    reader->below = udp->op;
    reader->op = *udp->op;
    reader->op.attach = NULL;
    reader->op.get_info = get_info;
    reader->op.attach2 = attach2;
    reader->op.detach = detach;
    reader->op.media_start = media_start;
    reader->op.media_stop = media_stop;
    reader->op.send_rtp = send_rtp;
    reader->op.send_rtcp = send_rtcp;
    reader->op.send_rtcp2 = send_rtcp2;
    reader->op.destroy = destroy;
    reader->job.run = deliver_dtls;
    atomic_init(&reader->refs, 1);
    pthread_mutex_init(&reader->lock, NULL);
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&reader->delivery, &recursive);
    pthread_mutexattr_destroy(&recursive);
    udp->user_data = reader;
    udp->op = &reader->op;
    return true;
}

/* ---- received packets ---- */

static int64_t realtime_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int64_t arrival_of(struct msghdr *message)
{
    const int64_t now_ns = monotonic_ns();
    const struct cmsghdr *control = CMSG_FIRSTHDR(message);
    struct timespec came;
    if (!control || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SO_TIMESTAMPNS)
        return now_ns;
    memcpy(&came, CMSG_DATA(control), sizeof came);
    const int64_t age_ns = realtime_ns() - (came.tv_sec * 1000000000LL + came.tv_nsec);
    return age_ns >= 0 && age_ns < MAX_AGE_NS ? now_ns - age_ns : now_ns;
}

/* RFC 7983, 7. */
static bool is_dtls(const uint8_t *packet, unsigned size)
{
    return size > 0 && packet[0] >= 20 && packet[0] <= 63;
}

/* False if no packets may be delivered any more. */
static bool deliver(reader_t *reader, bool is_rtcp, void *packet, unsigned size, const pj_sockaddr *source)
{
    pj_sockaddr from = *source;
    pthread_mutex_lock(&reader->lock);
    const bool reading = reader->index >= 0;
    pjmedia_transport_attach_param user = reader->user;
    *(is_rtcp ? &reader->rtcp_source : &reader->rtp_source) = from;
    reader->rtcp_came = reader->rtcp_came || is_rtcp;
    pthread_mutex_unlock(&reader->lock);
    if (!reading)
        return false;
    if (is_rtcp && user.rtcp_cb) {
        user.rtcp_cb(user.user_data, packet, (pj_ssize_t)size);
    } else if (!is_rtcp && user.rtp_cb2) {
        pjmedia_tp_cb_param param = {.user_data = user.user_data, .pkt = packet, .size = (pj_ssize_t)size, .src_addr = &from};
        user.rtp_cb2(&param);
    } else if (!is_rtcp && user.rtp_cb) {
        user.rtp_cb(user.user_data, packet, (pj_ssize_t)size);
    }
    return true;
}

static bool is_reading(reader_t *reader)
{
    pthread_mutex_lock(&reader->lock);
    const bool reading = reader->index >= 0;
    pthread_mutex_unlock(&reader->lock);
    return reading;
}

/* ---- DTLS packets, which threads of their own deliver ---- */

/* Packets of the RTP port come first: audio needs no other handshake than that, but waits while another one's packet is
 * processed. A packet beyond the limit is lost, as DTLS allows. */
static bool queue_dtls(reader_t *reader, bool is_rtcp, const void *bytes, unsigned size, const pj_sockaddr *source)
{
    packet_t *packet = malloc(sizeof *packet + size);
    if (packet) {
        *packet = (packet_t){.is_rtcp = is_rtcp, .source = *source, .arrival_ns = arrival_ns, .size = size};
        memcpy(packet->bytes, bytes, size);
    }
    pthread_mutex_lock(&reader->lock);
    const bool reading = reader->index >= 0, kept = packet && reading && reader->dtls_count < MAX_DTLS_PACKETS;
    const bool posts = kept && !reader->dtls_posted;
    if (kept) {
        packet_t **at = &reader->dtls;
        while (*at && (is_rtcp || !(*at)->is_rtcp))
            at = &(*at)->next;
        packet->next = *at;
        *at = packet;
        reader->dtls_count++;
        reader->dtls_posted = true;
    }
    pthread_mutex_unlock(&reader->lock);
    if (!kept)
        free(packet);
    if (posts) {
        atomic_fetch_add(&reader->refs, 1);
        dtls_worker_post(&reader->job);
    }
    return reading;
}

/* The next packet that waits. NULL: there is none, and the job must be posted for another; its sockets wake the reading
 * thread again. */
static packet_t *next_dtls(reader_t *reader)
{
    pthread_mutex_lock(&reader->lock);
    packet_t *packet = reader->dtls;
    if (packet) {
        reader->dtls = packet->next;
        reader->dtls_count--;
    } else {
        reader->dtls_posted = false;
    }
    pthread_mutex_unlock(&reader->lock);
    return packet;
}

static void watch_again(reader_t *reader, bool is_rtcp)
{
    pthread_mutex_lock(&reader->lock);
    if (reader->index >= 0)
        watch(EPOLL_CTL_MOD, is_rtcp ? reader->rtcp : reader->rtp, reader->index, is_rtcp);
    pthread_mutex_unlock(&reader->lock);
}

/* `delivery` is held. The group lock keeps a transport's memory that a callback destroys. */
static void deliver_packet(reader_t *reader, packet_t *packet)
{
    if (!is_reading(reader))
        return;
    pj_grp_lock_t *group = reader->group;
    pj_grp_lock_add_ref(group);
    arrival_ns = packet->arrival_ns;
    deliver(reader, packet->is_rtcp, packet->bytes, packet->size, &packet->source);
    arrival_ns = 0;
    pj_grp_lock_dec_ref(group);
}

static void deliver_dtls(dtls_job_t *job)
{
    reader_t *reader = (reader_t *)((char *)job - offsetof(reader_t, job));
    for (packet_t *packet; (packet = next_dtls(reader));) {
        pthread_mutex_lock(&reader->delivery);
        deliver_packet(reader, packet);
        pthread_mutex_unlock(&reader->delivery);
        free(packet);
    }
    watch_again(reader, false);
    watch_again(reader, true);
    release(reader);
}

/* ---- the thread ---- */

static void prepare(batch_t *batch)
{
    for (int i = 0; i < BATCH; i++) {
        batch->vectors[i] = (struct iovec){batch->packets[i], PACKET_SIZE};
        batch->messages[i].msg_hdr = (struct msghdr){
            .msg_name = &batch->sources[i],
            .msg_iov = &batch->vectors[i],
            .msg_iovlen = 1,
            .msg_control = &batch->control[i],
        };
    }
}

/* The system changes the lengths of the messages that it fills. */
static int receive(pj_sock_t socket, batch_t *batch)
{
    for (int i = 0; i < BATCH; i++) {
        batch->messages[i].msg_hdr.msg_namelen = sizeof batch->sources[i];
        batch->messages[i].msg_hdr.msg_controllen = sizeof batch->control[i];
    }
    return recvmmsg((int)socket, batch->messages, BATCH, MSG_DONTWAIT, NULL);
}

/* The group lock keeps a transport's memory that a callback destroys. False if there may be no more packets. */
static bool deliver_batch(reader_t *reader, bool is_rtcp, batch_t *batch, int count)
{
    bool reading = true;
    pj_grp_lock_t *group = reader->group;
    pj_grp_lock_add_ref(group);
    for (int i = 0; i < count && reading; i++) {
        uint8_t *packet = batch->packets[i];
        const unsigned size = batch->messages[i].msg_len;
        arrival_ns = arrival_of(&batch->messages[i].msg_hdr);
        reading = is_dtls(packet, size) ? queue_dtls(reader, is_rtcp, packet, size, &batch->sources[i])
                                        : deliver(reader, is_rtcp, packet, size, &batch->sources[i]);
    }
    arrival_ns = 0;
    pj_grp_lock_dec_ref(group);
    return reading && count == BATCH;
}

/* An error that is left in the queue would wake the thread again at once. */
static bool took_icmp_errors(reader_t *reader, bool is_rtcp)
{
    pthread_mutex_lock(&reader->lock);
    const bool taken = reader->index >= 0 && take_icmp_errors(reader, is_rtcp);
    pthread_mutex_unlock(&reader->lock);
    return taken;
}

/* The sockets stay open while `delivery` is held, unless a callback closes them. False while DTLS packets are delivered. */
static bool read_socket(reader_t *reader, bool is_rtcp, batch_t *batch)
{
    if (pthread_mutex_trylock(&reader->delivery) != 0)
        return false;
    for (int i = 0; i < MAX_BATCHES && is_reading(reader); i++) {
        int count = receive(is_rtcp ? reader->rtcp : reader->rtp, batch);
        if (count < 0 && (is_rtcp || errno != EAGAIN) && took_icmp_errors(reader, is_rtcp))
            continue;
        if (count <= 0 || !deliver_batch(reader, is_rtcp, batch, count))
            break;
    }
    pthread_mutex_unlock(&reader->delivery);
    return true;
}

static void read_of(int index, bool is_rtcp, batch_t *batch)
{
    reader_t *reader = take(index);
    if (!reader)
        return;
    if (read_socket(reader, is_rtcp, batch) && is_rtcp)
        watch_again(reader, true);
    release(reader);
}

static void read_event(uint64_t event, batch_t *batch)
{
    const int index = (int)(event >> 1);
    read_of(index, false, batch);
    if (event & 1)
        read_of(index, true, batch);
}

static void read_rtp(int phase, batch_t *batch)
{
    if (phase == 0)
        group_by_phase();
    for (int i = groups.first[phase]; i != NO_READER; i = groups.next[i]) {
        reader_t *reader = take(i);
        if (!reader)
            continue;
        if (atomic_load(&reader->phase) == phase)
            read_socket(reader, false, batch);
        release(reader);
    }
}

static void arm(void)
{
    const int64_t now_ns = monotonic_ns(), wait_ns = reading_times_begin(&all.times, now_ns) - now_ns;
    const struct itimerspec timer = {.it_value.tv_nsec = wait_ns > MIN_WAIT_NS ? wait_ns : MIN_WAIT_NS};
    timerfd_settime(all.timer, 0, &timer, NULL);
}

/* Every tick before that of the next reading has had its own, or needs none. */
static void publish_reading(void)
{
    pthread_mutex_lock(&all.wait_lock);
    atomic_store(&all.read_until_ns, reading_times_tick(&all.times) - 1);
    pthread_cond_broadcast(&all.has_read);
    pthread_mutex_unlock(&all.wait_lock);
}

void rtp_reader_wait(int64_t tick_ns, int64_t deadline_ns)
{
    const struct timespec deadline = {deadline_ns / 1000000000LL, deadline_ns % 1000000000LL};
    if (atomic_load(&all.read_until_ns) >= tick_ns)
        return;
    pthread_mutex_lock(&all.wait_lock);
    while (atomic_load(&all.read_until_ns) < tick_ns &&
           pthread_cond_clockwait(&all.has_read, &all.wait_lock, CLOCK_MONOTONIC, &deadline) == 0)
        ;
    pthread_mutex_unlock(&all.wait_lock);
}

static void read_before_tick(batch_t *batch)
{
    const int64_t began_ns = monotonic_ns();
    read_rtp(all.times.phase, batch);
    reading_times_done(&all.times, monotonic_ns() - began_ns, phases_in_use());
    publish_reading();
    arm();
}

static void *run(void *arg)
{
    static batch_t batch;
    static __thread pj_thread_desc descriptor;
    pj_thread_t *thread;
    struct epoll_event events[MAX_EVENTS];
    PJ_UNUSED_ARG(arg);
    pthread_setname_np(pthread_self(), "rtp-reader");
    pj_thread_register("rtp-reader", descriptor, &thread);
    realtime_thread_become(PRIORITY);
    prepare(&batch);
    arm();
    while (atomic_load(&all.running)) {
        const int count = epoll_wait(all.epoll, events, MAX_EVENTS, -1);
        bool ticked = false;
        for (int i = 0; i < count; i++)
            if (events[i].data.u64 == TIMER)
                ticked = true;
            else
                read_event(events[i].data.u64, &batch);
        if (ticked)
            read_before_tick(&batch);
    }
    return NULL;
}

/* Once a process: a transport that is destroyed late may still be in the epoll set. */
static int open_descriptors(void)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = TIMER};
    if (all.epoll >= 0)
        return 0;
    int set = epoll_create1(EPOLL_CLOEXEC), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (set < 0 || timer < 0 || epoll_ctl(set, EPOLL_CTL_ADD, timer, &event) != 0) {
        if (set >= 0)
            close(set);
        if (timer >= 0)
            close(timer);
        return -1;
    }
    all.epoll = set;
    all.timer = timer;
    return 0;
}

int rtp_reader_start(int64_t period_ns)
{
    if (open_descriptors() != 0)
        return -1;
    if (dtls_worker_start() != 0)
        return -1;
    reading_times_init(&all.times, period_ns, monotonic_ns());
    publish_reading();
    atomic_store(&all.running, true);
    if (pthread_create(&all.thread, NULL, run, NULL) == 0)
        return 0;
    atomic_store(&all.running, false);
    dtls_worker_stop();
    return -1;
}

void rtp_reader_stop(void)
{
    if (!atomic_exchange(&all.running, false))
        return;
    pthread_join(all.thread, NULL);
    dtls_worker_stop();
}
