/* PCM port: a PCM channel as the media port that the pump drives in the place of an RTP stream's. */
#ifndef TRUNKLINE_PUMP_PCM_PORT_H
#define TRUNKLINE_PUMP_PCM_PORT_H

#include <pjsua-lib/pjsua.h>

#include "pump/pcm_channel.h"

/* On a thread of PJLIB. The port has one reference, and one of the channel. Returns NULL if out of memory. */
pjmedia_port *pcm_port_create(pcm_channel_t *channel);
/* The channel of such a port. */
pcm_channel_t *pcm_port_channel(pjmedia_port *port);

#endif
