#include "net/force_close.h"

void force_close(pjsip_transport *transport)
{
    const pjsip_transport_state_info info = {.status = PJ_ECANCELLED};
    pjsip_tp_state_callback notify = pjsip_tpmgr_get_state_cb(transport->tpmgr);
    if (transport->is_shutdown)
        return;
    pjsip_transport_add_ref(transport);
    pjsip_transport_shutdown(transport);
    if (notify)
        notify(transport, PJSIP_TP_STATE_DISCONNECTED, &info);
    pjsip_transport_dec_ref(transport);
}
