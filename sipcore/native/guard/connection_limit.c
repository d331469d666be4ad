#define _GNU_SOURCE
#include "guard/connection_limit.h"

#include <pthread.h>
#include <string.h>

#define COMPLETE (-1)

static struct {
    pthread_mutex_t lock;
    struct {
        pjsip_transport *transport;
        ip_key_t source;
        bool unknown;
        int64_t began_ms;       /* COMPLETE between messages */
    } entry[MAX_CONNECTIONS + MAX_CONNECTIONS_OF_UNKNOWN_SOURCES];
    int count;
} connections = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The lock is held. */
static int find(const pjsip_transport *transport)
{
    for (int i = 0; i < connections.count; i++)
        if (connections.entry[i].transport == transport)
            return i;
    return -1;
}

/* The lock is held. Of one source, or of all with NULL. */
static int count_of(const ip_key_t *source, bool unknown)
{
    int count = 0;
    for (int i = 0; i < connections.count; i++)
        count += connections.entry[i].unknown == unknown &&
                 (!source || memcmp(&connections.entry[i].source, source, sizeof *source) == 0);
    return count;
}

/* The lock is held. */
static bool has_room(const ip_key_t *source, bool unknown)
{
    if (unknown)
        return count_of(NULL, true) < MAX_CONNECTIONS_OF_UNKNOWN_SOURCES &&
               count_of(source, true) < MAX_CONNECTIONS_PER_UNKNOWN_SOURCE;
    return count_of(NULL, false) < MAX_CONNECTIONS && count_of(source, false) < MAX_CONNECTIONS_PER_SOURCE;
}

bool connection_limit_add(pjsip_transport *transport, const ip_key_t *source, bool unknown, int64_t now_ms)
{
    const ip_key_t prefix = ip_key_prefix64(source);
    pthread_mutex_lock(&connections.lock);
    bool fits = has_room(&prefix, unknown);
    if (fits) {
        connections.entry[connections.count].transport = transport;
        connections.entry[connections.count].source = prefix;
        connections.entry[connections.count].unknown = unknown;
        connections.entry[connections.count++].began_ms = now_ms;
    }
    pthread_mutex_unlock(&connections.lock);
    return fits;
}

void connection_limit_remove(const pjsip_transport *transport)
{
    pthread_mutex_lock(&connections.lock);
    int i = find(transport);
    if (i >= 0)
        connections.entry[i] = connections.entry[--connections.count];
    pthread_mutex_unlock(&connections.lock);
}

void connection_limit_clear(void)
{
    pthread_mutex_lock(&connections.lock);
    connections.count = 0;
    pthread_mutex_unlock(&connections.lock);
}

void connection_limit_message_started(const pjsip_transport *transport, int64_t now_ms)
{
    pthread_mutex_lock(&connections.lock);
    int i = find(transport);
    if (i >= 0 && connections.entry[i].began_ms == COMPLETE)
        connections.entry[i].began_ms = now_ms;
    pthread_mutex_unlock(&connections.lock);
}

void connection_limit_message_complete(const pjsip_transport *transport, bool known)
{
    pthread_mutex_lock(&connections.lock);
    int i = find(transport);
    if (i >= 0 && known && count_of(NULL, false) < MAX_CONNECTIONS)
        connections.entry[i].unknown = false;
    if (i >= 0 && !connections.entry[i].unknown)
        connections.entry[i].began_ms = COMPLETE;
    pthread_mutex_unlock(&connections.lock);
}

pjsip_transport *connection_limit_next_slow(int64_t now_ms, int64_t allowed_ms)
{
    pjsip_transport *slow = NULL;
    pthread_mutex_lock(&connections.lock);
    for (int i = 0; !slow && i < connections.count; i++)
        if (connections.entry[i].began_ms != COMPLETE && now_ms - connections.entry[i].began_ms > allowed_ms) {
            slow = connections.entry[i].transport;
            connections.entry[i].began_ms = COMPLETE; /* it is returned once */
            pjsip_transport_add_ref(slow);
        }
    pthread_mutex_unlock(&connections.lock);
    return slow;
}
