#define _GNU_SOURCE
#include "guard/connection_limit.h"

#include <pthread.h>
#include <string.h>

#define WHOLE (-1)

static struct {
    pthread_mutex_t lock;
    struct {
        pjsip_transport *transport;
        address_key_t source;
        bool stranger;
        int64_t began_ms;       /* WHOLE between messages */
    } place[CONNECTIONS_MOST + CONNECTIONS_OF_STRANGERS];
    int count;
} connections = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The lock is held. */
static int find(const pjsip_transport *transport)
{
    for (int i = 0; i < connections.count; i++)
        if (connections.place[i].transport == transport)
            return i;
    return -1;
}

/* The lock is held. Of one source, or of all with NULL. */
static int count_of(const address_key_t *source, bool stranger)
{
    int count = 0;
    for (int i = 0; i < connections.count; i++)
        count += connections.place[i].stranger == stranger &&
                 (!source || memcmp(&connections.place[i].source, source, sizeof *source) == 0);
    return count;
}

/* The lock is held. */
static bool has_room(const address_key_t *source, bool stranger)
{
    if (stranger)
        return count_of(NULL, true) < CONNECTIONS_OF_STRANGERS && count_of(source, true) < CONNECTIONS_OF_STRANGER;
    return count_of(NULL, false) < CONNECTIONS_MOST && count_of(source, false) < CONNECTIONS_OF_ONE;
}

bool connections_add(pjsip_transport *transport, const address_key_t *source, bool stranger, int64_t now_ms)
{
    const address_key_t site = address_key_site(source);
    pthread_mutex_lock(&connections.lock);
    bool fits = has_room(&site, stranger);
    if (fits) {
        connections.place[connections.count].transport = transport;
        connections.place[connections.count].source = site;
        connections.place[connections.count].stranger = stranger;
        connections.place[connections.count++].began_ms = now_ms;
    }
    pthread_mutex_unlock(&connections.lock);
    return fits;
}

void connections_remove(const pjsip_transport *transport)
{
    pthread_mutex_lock(&connections.lock);
    int i = find(transport);
    if (i >= 0)
        connections.place[i] = connections.place[--connections.count];
    pthread_mutex_unlock(&connections.lock);
}

void connections_forget(void)
{
    pthread_mutex_lock(&connections.lock);
    connections.count = 0;
    pthread_mutex_unlock(&connections.lock);
}

void connections_began(const pjsip_transport *transport, int64_t now_ms)
{
    pthread_mutex_lock(&connections.lock);
    int i = find(transport);
    if (i >= 0 && connections.place[i].began_ms == WHOLE)
        connections.place[i].began_ms = now_ms;
    pthread_mutex_unlock(&connections.lock);
}

void connections_whole(const pjsip_transport *transport, bool known)
{
    pthread_mutex_lock(&connections.lock);
    int i = find(transport);
    if (i >= 0 && known && count_of(NULL, false) < CONNECTIONS_MOST)
        connections.place[i].stranger = false;
    if (i >= 0 && !connections.place[i].stranger)
        connections.place[i].began_ms = WHOLE;
    pthread_mutex_unlock(&connections.lock);
}

pjsip_transport *connections_slow(int64_t now_ms, int64_t allowed_ms)
{
    pjsip_transport *slow = NULL;
    pthread_mutex_lock(&connections.lock);
    for (int i = 0; !slow && i < connections.count; i++)
        if (connections.place[i].began_ms != WHOLE && now_ms - connections.place[i].began_ms > allowed_ms) {
            slow = connections.place[i].transport;
            connections.place[i].began_ms = WHOLE; /* it is told of once */
            pjsip_transport_add_ref(slow);
        }
    pthread_mutex_unlock(&connections.lock);
    return slow;
}
