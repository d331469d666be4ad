/* The message tap's ring: each byte adds a record of some length, or takes records. They come out in order, and lost ones
 * are counted. The ring is kept from input to input, so that each place of its end is reached. */
#include "stack.h"

#include <string.h>

#include "net/message_tap.h"

#define BATCH (64u << 10)       /* at least one of the longest records */

static uint64_t put, taken, lost_before;
static char text[TAP_TEXT + 1];

static void put_record(pj_pool_t *pool, size_t size)
{
    static pjsip_transport transport;
    static pjsip_rx_data rdata;
    static pjsip_msg *msg;
    static pjsip_cid_hdr *call_id;
    if (!msg) {
        msg = pjsip_msg_create(pjsua_pool_create("message", 1000, 1000), PJSIP_REQUEST_MSG);
        call_id = pjsip_cid_hdr_create(pjsua_pool_create("call-id", 1000, 1000));
        transport.type_name = "UDP";
    }
    char name[32];
    pj_ansi_snprintf(name, sizeof name, "%llu", (unsigned long long)put++);
    pj_strdup2(pool, &call_id->id, name);
    rdata.tp_info.transport = &transport;
    rdata.msg_info.msg = msg;
    rdata.msg_info.cid = call_id;
    rdata.msg_info.msg_buf = text;
    rdata.msg_info.len = (int)size;
    tap_received(&rdata);
}

static void look(const uint8_t *record, uint64_t number)
{
    tap_facts_t facts;
    char name[32];
    memcpy(&facts, record, sizeof facts);
    pj_ansi_snprintf(name, sizeof name, "%llu", (unsigned long long)number);
    must(facts.call_id == strlen(name) && memcmp(record + sizeof facts, name, facts.call_id) == 0, "records come in order");
    const uint8_t *copy = record + sizeof facts + facts.call_id + facts.from_tag + facts.to_tag + facts.method;
    must(memcmp(copy, text, facts.text) == 0, "a record is as it was");
}

static void take_records(uint32_t room)
{
    static uint8_t batch[BATCH];
    uint64_t lost;
    const uint32_t size = tap_take(batch, room, &lost);
    must(size <= room, "no more is taken than there is room for");
    taken += lost - lost_before;
    lost_before = lost;
    for (uint32_t at = 0; at < size; taken++) {
        tap_facts_t facts;
        memcpy(&facts, batch + at, sizeof facts);
        must(facts.size >= sizeof facts && at + facts.size <= size, "a record is whole");
        look(batch + at, taken);
        at += facts.size;
    }
    must(taken <= put, "nothing comes twice");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pj_pool_t *pool = stack_pool();
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + i % 26);
    for (const uint8_t *end = data + size; data < end; data++) {
        if (*data & 0x80)
            take_records(BATCH >> (*data & 3));
        else
            put_record(pool, (size_t)(*data & 0x7F) * 129);
    }
    return 0;
}
