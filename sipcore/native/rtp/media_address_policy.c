#include "rtp/media_address_policy.h"

#include "net/source_acl.h"

#include <pthread.h>
#include <string.h>

static struct {
    pthread_mutex_t lock;
    sources_t *networks, *never;
} places = {.lock = PTHREAD_MUTEX_INITIALIZER};

void media_places_set(sources_t *networks, sources_t *never)
{
    pthread_mutex_lock(&places.lock);
    sources_t *old_networks = places.networks, *old_never = places.never;
    places.networks = networks;
    places.never = never;
    pthread_mutex_unlock(&places.lock);
    sources_free(old_networks);
    sources_free(old_never);
}

/* 127.0.0.0/8 and ::1. */
static bool is_loopback(const address_key_t *key)
{
    static const uint8_t mapped[13] = {[10] = 0xFF, [11] = 0xFF, [12] = 127}, six[16] = {[15] = 1};
    return memcmp(key->byte, mapped, sizeof mapped) == 0 || memcmp(key->byte, six, sizeof six) == 0;
}

enum media_place media_place_of(const pj_sockaddr *place, const pj_sockaddr *peer)
{
    address_key_t key, from;
    if (!address_key(place, &key) || !pj_sockaddr_has_addr(place))
        return MEDIA_HELD;
    const bool has_peer = address_key(peer, &from);
    pthread_mutex_lock(&places.lock);
    const bool never = sources_contain(places.never, &key), listed = sources_contain(places.networks, &key);
    pthread_mutex_unlock(&places.lock);
    if (never)
        return MEDIA_NEVER;
    if (has_peer && memcmp(&key, &from, sizeof key) == 0)
        return MEDIA_OWN;
    if (is_loopback(&key) && !(has_peer && is_loopback(&from)))
        return MEDIA_ELSEWHERE;
    return listed || source_acl_is_trunk(place) ? MEDIA_ALLOWED : MEDIA_ELSEWHERE;
}
