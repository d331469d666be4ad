#define _GNU_SOURCE
#include "tls/tls_listener.h"

#include "net/drop_counters.h"
#include "net/force_close.h"
#include "net/source_acl.h"
#include "tls/bpf_accept_filter.h"
#include "tls/close_reasons.h"
#include "tls/peer_verify.h"
#include "tls/reject_unknown_sources.h"
#include "tls/certificate_name_mismatch.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pjsua-lib/pjsua_internal.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define HANDSHAKE_S 5     /* limit for a peer's handshake */
#define FIRST_MESSAGE_S 10
#define RELOAD_TIMEOUT_S 5
#define LISTENERS 2

typedef struct {
    pjsip_tpfactory *factory;
    pj_sockaddr bound;
    char name[PJ_INET6_ADDRSTRLEN];
    bool open_to_peers;
    int unknown_socket;      /* the socket of unknown sources, or TLS_NO_SOCKET */
} listener_t;

static struct {
    pthread_mutex_t lock; /* guards the listeners and changes of their sockets */
    listener_t listeners[LISTENERS];
    int count;
} tls = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t done;
    const tls_files_t *files; /* NULL: no reload is in progress */
    pj_status_t status;
} reload = {.lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static struct {
    pthread_mutex_t lock;
    tls_event_t events[TLS_EVENTS];
    int count;
    uint64_t more;
} event_log = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- failed connections ---- */

static void add_event(const char *peer, size_t length, const char *reason)
{
    tls_event_t event = {.count = 1};
    memcpy(event.peer, peer, length < sizeof event.peer ? length : sizeof event.peer - 1);
    strncpy(event.reason, reason, sizeof event.reason - 1);
    pthread_mutex_lock(&event_log.lock);
    int i = 0;
    while (i < event_log.count &&
           (strcmp(event_log.events[i].peer, event.peer) || strcmp(event_log.events[i].reason, event.reason)))
        i++;
    if (i < event_log.count)
        event_log.events[i].count++;
    else if (i < TLS_EVENTS)
        event_log.events[event_log.count++] = event;
    else
        event_log.more++;
    pthread_mutex_unlock(&event_log.lock);
}

int tls_take_events(tls_event_t *out, uint64_t *more)
{
    pthread_mutex_lock(&event_log.lock);
    int count = event_log.count;
    memcpy(out, event_log.events, (size_t)count * sizeof *out);
    *more = event_log.more;
    event_log.count = 0;
    event_log.more = 0;
    pthread_mutex_unlock(&event_log.lock);
    return count;
}

/* ---- listeners ---- */

static void on_accept_fail(const pjsip_tls_on_accept_fail_param *param)
{
    char peer[PJ_INET6_ADDRSTRLEN] = "", reason[PJ_ERR_MSG_SIZE];
    if (param->remote_addr)
        pj_sockaddr_print(param->remote_addr, peer, sizeof peer, 0);
    pj_strerror(param->status, reason, sizeof reason);
    add_event(peer, strlen(peer), reason);
    if (param->remote_addr && !source_acl_has(param->remote_addr))
        drop_count(DROP_UNKNOWN_SOURCE, peer);
}

/* pjsip_tls_setting_copy keeps the pointers to these values. */
static int on = 1;

static void add_option(pj_sockopt_params *params, int level, int name)
{
    params->options[params->cnt].level = level;
    params->options[params->cnt].optname = name;
    params->options[params->cnt].optval = &on;
    params->options[params->cnt++].optlen = sizeof on;
}

/* PJSIP does not verify certificates: see tls_on_transport_state. Without reuse_addr a reload could not open the port that
 * connections of the former listener still have. */
static void fill_setting(pjsip_tls_setting *setting, const tls_files_t *files, int family)
{
    pjsip_tls_setting_default(setting);
    setting->cert_file = pj_str((char *)files->certificate);
    setting->privkey_file = pj_str((char *)files->key);
    setting->ca_list_file = pj_str((char *)files->authorities);
    setting->ca_list_path = pj_str((char *)files->folder);
    setting->proto = PJ_SSL_SOCK_PROTO_TLS1_2 | PJ_SSL_SOCK_PROTO_TLS1_3;
    setting->timeout.sec = HANDSHAKE_S;
    setting->initial_timeout = FIRST_MESSAGE_S;
    setting->reuse_addr = PJ_TRUE;
    setting->enable_renegotiation = PJ_FALSE;
    setting->verify_server = PJ_FALSE;
    setting->on_accept_fail_cb = on_accept_fail;
    add_option(&setting->sockopt_params, IPPROTO_TCP, TCP_NODELAY);
    if (family == pj_AF_INET6())
        add_option(&setting->sockopt_params, IPPROTO_IPV6, IPV6_V6ONLY);
}

static bool is_listener_at(int fd, const pj_sockaddr *bound)
{
    pj_sockaddr address;
    int accepting = 0;
    socklen_t size = sizeof accepting, length = sizeof address;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepting, &size) == 0 && accepting &&
           getsockname(fd, (struct sockaddr *)&address, &length) == 0 && pj_sockaddr_cmp(&address, bound) == 0;
}

/* PJSIP gives no access to the socket that it listens on. -1 when there is none. */
static int listening_socket(const pj_sockaddr *bound, int unknown_socket)
{
    int found = -1;
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry = folder ? readdir(folder) : NULL; entry && found < 0; entry = readdir(folder))
        if (*entry->d_name != '.' && atoi(entry->d_name) != unknown_socket && is_listener_at(atoi(entry->d_name), bound))
            found = atoi(entry->d_name);
    if (folder)
        closedir(folder);
    return found;
}

/* TCP_DEFER_ACCEPT: a connection without data stays in the kernel's queue, which is short. */
static bool apply_filter(listener_t *listener)
{
    int fd = listening_socket(&listener->bound, listener->unknown_socket), wait_s = HANDSHAKE_S;
    if (fd < 0)
        return false;
    setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &wait_s, sizeof wait_s);
    if (!listener->open_to_peers) {
        bpf_accept_filter_drop_all(fd);
        return true;
    }
    bpf_accept_filter_attach(fd, listener->bound.addr.sa_family == pj_AF_INET6());
    listener->unknown_socket = tls_unknown_sources_split(fd, &listener->bound, listener->unknown_socket);
    return true;
}

bool tls_listener_apply_filters(void)
{
    bool all = true;
    pthread_mutex_lock(&tls.lock);
    for (int i = 0; i < tls.count; i++)
        all = apply_filter(&tls.listeners[i]) && all;
    pthread_mutex_unlock(&tls.lock);
    return all;
}

bool tls_listener_accepts(void)
{
    bool open = false;
    pthread_mutex_lock(&tls.lock);
    for (int i = 0; i < tls.count; i++)
        open = open || tls.listeners[i].open_to_peers;
    pthread_mutex_unlock(&tls.lock);
    return open;
}

static pjsip_host_port name_of(listener_t *listener)
{
    return (pjsip_host_port){.host = pj_str(listener->name), .port = 0};
}

pj_status_t tls_listener_open(const char *host, int port, const char *name, const tls_files_t *files)
{
    pjsip_tls_setting setting;
    pj_str_t address = pj_str((char *)host);
    listener_t *listener = &tls.listeners[tls.count];
    int family = strchr(host, ':') ? pj_AF_INET6() : pj_AF_INET();
    if (tls.count == LISTENERS)
        return PJ_ETOOMANY;
    pj_bzero(listener, sizeof *listener);
    strncpy(listener->name, name, sizeof listener->name - 1);
    listener->open_to_peers = port != 0;
    listener->unknown_socket = TLS_NO_SOCKET;
    pj_status_t status = pj_sockaddr_init(family, &listener->bound, &address, (pj_uint16_t)port);
    if (status != PJ_SUCCESS)
        return status;
    fill_setting(&setting, files, family);
    pjsip_host_port named = name_of(listener);
    status = pjsip_tls_transport_start2(pjsua_var.endpt, &setting, &listener->bound, &named, 1, &listener->factory);
    if (status != PJ_SUCCESS)
        return status;
    pj_sockaddr_set_port(&listener->bound, (pj_uint16_t)pj_sockaddr_get_port(&listener->factory->local_addr));
    pthread_mutex_lock(&tls.lock);
    tls.count++;
    pthread_mutex_unlock(&tls.lock);
    return pjsua_tpfactory_register(listener->factory, NULL);
}

void tls_listener_clear(void)
{
    pthread_mutex_lock(&tls.lock);
    for (int i = 0; i < tls.count; i++)
        tls.listeners[i].unknown_socket = tls_unknown_sources_close(tls.listeners[i].unknown_socket);
    tls.count = 0;
    pthread_mutex_unlock(&tls.lock);
    tls_name_mismatch_remove(NULL);
}

/* ---- reload of the certificate ---- */

static pj_status_t restart(listener_t *listener, const tls_files_t *files)
{
    pjsip_tls_setting setting;
    pjsip_host_port named = name_of(listener);
    fill_setting(&setting, files, listener->bound.addr.sa_family);
    return pjsip_tls_transport_restart2(listener->factory, &setting, &listener->bound, &named);
}

/* On PJSIP's worker, while the PJSIP thread waits: no connection is accepted or made meanwhile. */
static void reload_on_pjsip_thread(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&reload.lock);
    pthread_mutex_lock(&tls.lock);
    for (int i = 0; i < tls.count && reload.files; i++) {
        tls.listeners[i].unknown_socket = tls_unknown_sources_close(tls.listeners[i].unknown_socket); /* PJSIP shares no port */
        pj_status_t status = restart(&tls.listeners[i], reload.files);
        reload.status = status == PJ_SUCCESS ? reload.status : status;
    }
    pthread_mutex_unlock(&tls.lock);
    reload.files = NULL;
    pthread_cond_signal(&reload.done);
    pthread_mutex_unlock(&reload.lock);
}

pj_status_t tls_listener_reload(const tls_files_t *files)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += RELOAD_TIMEOUT_S;
    pthread_mutex_lock(&reload.lock);
    reload.files = files;
    reload.status = PJ_SUCCESS;
    pj_status_t status = pjsua_schedule_timer2(reload_on_pjsip_thread, NULL, 0);
    while (status == PJ_SUCCESS && reload.files)
        if (pthread_cond_timedwait(&reload.done, &reload.lock, &until) == ETIMEDOUT)
            status = PJ_ETIMEDOUT;
    reload.files = NULL;
    status = status == PJ_SUCCESS ? reload.status : status;
    pthread_mutex_unlock(&reload.lock);
    return status == PJ_SUCCESS && !tls_listener_apply_filters() ? PJ_STATUS_FROM_OS(EADDRINUSE) : status;
}

/* ---- sources that may connect ---- */

void tls_listener_allow(const char *const *sources, int count, const char *const *more, int more_count)
{
    bpf_accept_filter_build(sources, count, more, more_count);
    tls_listener_apply_filters();
}

void tls_listener_allow_all(bool on)
{
    if (bpf_accept_filter_allow_all(on))
        tls_listener_apply_filters();
}

void tls_listener_reject_unknown(void)
{
    pthread_mutex_lock(&tls.lock);
    for (int i = 0; i < tls.count; i++)
        tls_unknown_sources_reject(tls.listeners[i].unknown_socket);
    pthread_mutex_unlock(&tls.lock);
}

/* ---- outbound connections ---- */

/* An error after our own close means nothing. */
static void record_disconnect(const pjsip_transport *transport, pj_status_t status)
{
    const pj_str_t *peer = &transport->remote_name.host;
    char reason[PJ_ERR_MSG_SIZE];
    if (status == PJ_SUCCESS || status == PJ_ECANCELLED || transport->is_shutdown)
        return;
    pj_strerror(status, reason, sizeof reason);
    tls_close_reason_set(&transport->key.rem_addr, reason);
    if (status != PJ_EEOF)
        add_event(peer->ptr, (size_t)peer->slen, reason);
}

void tls_on_transport_state(pjsip_transport *transport, pjsip_transport_state state, const pjsip_transport_state_info *info)
{
    const pj_str_t *peer = &transport->remote_name.host;
    char reason[TLS_REASON_SIZE];
    if (transport->dir != PJSIP_TP_DIR_OUTGOING || !(transport->flag & PJSIP_TRANSPORT_SECURE))
        return;
    if (state == PJSIP_TP_STATE_DESTROY)
        tls_name_mismatch_remove(transport);
    if (state == PJSIP_TP_STATE_DISCONNECTED)
        record_disconnect(transport, info ? info->status : PJ_SUCCESS);
    if (state != PJSIP_TP_STATE_CONNECTED || !info || !info->ext_info)
        return;
    if (!tls_peer_is_untrusted(transport, ((const pjsip_tls_state_info *)info->ext_info)->ssl_sock_info, reason))
        return;
    add_event(peer->ptr, (size_t)peer->slen, reason);
    tls_close_reason_set(&transport->key.rem_addr, reason);
    force_close(transport);
}
