#include "pump/null_port.h"

static pj_status_t put(pjmedia_port *port, pjmedia_frame *frame)
{
    PJ_UNUSED_ARG(port);
    PJ_UNUSED_ARG(frame);
    return PJ_SUCCESS;
}

static pj_status_t get(pjmedia_port *port, pjmedia_frame *frame)
{
    PJ_UNUSED_ARG(port);
    frame->type = PJMEDIA_FRAME_TYPE_NONE;
    frame->size = 0;
    return PJ_SUCCESS;
}

/* PJSUA ends the stream: detaches it, unless a re-INVITE has given the slot a newer one. */
static pj_status_t destroy(pjmedia_port *port)
{
    null_port_t *null = (null_port_t *)port;
    pj_pool_t *pool = null->pool;
    pthread_mutex_lock(null->open_lock);
    slot_t *slot = null->slot;
    pthread_mutex_lock(&slot->stream_lock);
    bool ours = slot->port == null->stream_port;
    pthread_mutex_unlock(&slot->stream_lock);
    if (slot->null == null)
        slot->null = NULL;
    if (ours)
        slot_detach(slot);
    pthread_mutex_unlock(null->open_lock);
    pjmedia_port_dec_ref(null->stream_port);
    pj_pool_release(pool);
    return PJ_SUCCESS;
}

null_port_t *null_port_create(slot_t *slot, pjmedia_port *stream_port, pthread_mutex_t *open_lock)
{
    pj_pool_t *pool = pjsua_pool_create("trunkline-null", 512, 512);
    if (!pool)
        return NULL;
    null_port_t *null = PJ_POOL_ZALLOC_T(pool, null_port_t);
    pj_str_t name = pj_str("null");
    pjmedia_port_info_init(&null->base.info, &name, 0x544C, 8000, 1, 16, 160);
    null->base.put_frame = put;
    null->base.get_frame = get;
    null->base.on_destroy = destroy;
    null->pool = pool;
    null->open_lock = open_lock;
    null->slot = slot;
    null->stream_port = stream_port;
    if (pjmedia_port_init_grp_lock(&null->base, pool, NULL) != PJ_SUCCESS) {
        pj_pool_release(pool);
        return NULL;
    }
    pjmedia_port_add_ref(stream_port);
    return null;
}
