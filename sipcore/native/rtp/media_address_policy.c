#include "rtp/media_address_policy.h"

#include "net/source_acl.h"

#include <pthread.h>
#include <string.h>

static struct {
    pthread_mutex_t lock;
    ip_set_t *allowed, *forbidden;
} policy = {.lock = PTHREAD_MUTEX_INITIALIZER};

void media_address_policy_set(ip_set_t *allowed, ip_set_t *forbidden)
{
    pthread_mutex_lock(&policy.lock);
    ip_set_t *old_allowed = policy.allowed, *old_forbidden = policy.forbidden;
    policy.allowed = allowed;
    policy.forbidden = forbidden;
    pthread_mutex_unlock(&policy.lock);
    ip_set_free(old_allowed);
    ip_set_free(old_forbidden);
}

/* 127.0.0.0/8 and ::1. */
static bool is_loopback(const ip_key_t *key)
{
    static const uint8_t mapped[13] = {[10] = 0xFF, [11] = 0xFF, [12] = 127}, six[16] = {[15] = 1};
    return memcmp(key->byte, mapped, sizeof mapped) == 0 || memcmp(key->byte, six, sizeof six) == 0;
}

enum media_address_class media_address_classify(const pj_sockaddr *address, const pj_sockaddr *peer)
{
    ip_key_t key, from;
    if (!ip_key_of(address, &key) || !pj_sockaddr_has_addr(address))
        return MEDIA_HELD;
    const bool has_peer = ip_key_of(peer, &from);
    pthread_mutex_lock(&policy.lock);
    const bool forbidden = ip_set_contains(policy.forbidden, &key), listed = ip_set_contains(policy.allowed, &key);
    pthread_mutex_unlock(&policy.lock);
    if (forbidden)
        return MEDIA_FORBIDDEN;
    if (has_peer && memcmp(&key, &from, sizeof key) == 0)
        return MEDIA_SIGNALLING;
    if (is_loopback(&key) && !(has_peer && is_loopback(&from)))
        return MEDIA_UNLISTED;
    return listed || source_acl_is_trunk(address) ? MEDIA_ALLOWED : MEDIA_UNLISTED;
}
