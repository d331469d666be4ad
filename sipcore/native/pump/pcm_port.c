#include "pump/pcm_port.h"

#include "pump/tick.h"

typedef struct pcm_port {
    pjmedia_port base;
    pj_pool_t *pool;
    pcm_channel_t *channel;
} pcm_port_t;

static pj_status_t put(pjmedia_port *port, pjmedia_frame *frame)
{
    pcm_channel_put(((pcm_port_t *)port)->channel, frame->buf, (uint32_t)(frame->size / sizeof(int16_t)));
    return PJ_SUCCESS;
}

static pj_status_t get(pjmedia_port *port, pjmedia_frame *frame)
{
    const uint32_t count = PJMEDIA_PIA_SPF(&port->info);
    const bool taken = pcm_channel_take(((pcm_port_t *)port)->channel, frame->buf, count);
    frame->type = taken ? PJMEDIA_FRAME_TYPE_AUDIO : PJMEDIA_FRAME_TYPE_NONE;
    frame->size = taken ? count * sizeof(int16_t) : 0;
    return PJ_SUCCESS;
}

static pj_status_t destroy(pjmedia_port *port)
{
    pj_pool_t *pool = ((pcm_port_t *)port)->pool;
    pcm_channel_release(((pcm_port_t *)port)->channel);
    pj_pool_release(pool);
    return PJ_SUCCESS;
}

pjmedia_port *pcm_port_create(pcm_channel_t *channel)
{
    const uint32_t rate = pcm_channel_slot_rate(channel);
    pj_pool_t *pool = pjsua_pool_create("trunkline-pcm", 512, 512);
    if (!pool)
        return NULL;
    pcm_port_t *port = PJ_POOL_ZALLOC_T(pool, pcm_port_t);
    pj_str_t name = pj_str("pcm");
    pjmedia_port_info_init(&port->base.info, &name, 0x544D, rate, 1, 16, rate * TICK_MS / 1000);
    port->base.put_frame = put;
    port->base.get_frame = get;
    port->base.on_destroy = destroy;
    port->pool = pool;
    port->channel = channel;
    if (pjmedia_port_init_grp_lock(&port->base, pool, NULL) != PJ_SUCCESS) {
        pj_pool_release(pool);
        return NULL;
    }
    pcm_channel_add_ref(channel);
    return &port->base;
}

pcm_channel_t *pcm_port_channel(pjmedia_port *port)
{
    return ((pcm_port_t *)port)->channel;
}
