/* The message tap's ring: each byte adds a record of some length, or reads records. They are read in order, and lost ones
 * are counted. The ring lasts from input to input, so that its end is reached at every offset. */
#include "stack.h"

#include <string.h>

#include "net/message_tap.h"

#define BATCH (64u << 10)       /* at least one of the longest records */

static uint64_t written_count, read_count, lost_before;
static char text[TAP_MAX_TEXT + 1];

static void write_record(pj_pool_t *pool, size_t size)
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
    pj_ansi_snprintf(name, sizeof name, "%llu", (unsigned long long)written_count++);
    pj_strdup2(pool, &call_id->id, name);
    rdata.tp_info.transport = &transport;
    rdata.msg_info.msg = msg;
    rdata.msg_info.cid = call_id;
    rdata.msg_info.msg_buf = text;
    rdata.msg_info.len = (int)size;
    tap_received(&rdata);
}

static void check(const uint8_t *record, uint64_t number)
{
    tap_header_t header;
    char name[32];
    memcpy(&header, record, sizeof header);
    pj_ansi_snprintf(name, sizeof name, "%llu", (unsigned long long)number);
    must(header.call_id == strlen(name) && memcmp(record + sizeof header, name, header.call_id) == 0, "records come in order");
    const uint8_t *copy = record + sizeof header + header.call_id + header.from_tag + header.to_tag + header.method;
    must(memcmp(copy, text, header.text) == 0, "a record is unchanged");
}

static void read_records(uint32_t room)
{
    static uint8_t batch[BATCH];
    uint64_t lost;
    const uint32_t size = tap_read(batch, room, &lost);
    must(size <= room, "no more is read than there is room for");
    read_count += lost - lost_before;
    lost_before = lost;
    for (uint32_t at = 0; at < size; read_count++) {
        tap_header_t header;
        memcpy(&header, batch + at, sizeof header);
        must(header.size >= sizeof header && at + header.size <= size, "a record is whole");
        check(batch + at, read_count);
        at += header.size;
    }
    must(read_count <= written_count, "no record is read twice");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pj_pool_t *pool = stack_pool();
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + i % 26);
    for (const uint8_t *end = data + size; data < end; data++) {
        if (*data & 0x80)
            read_records(BATCH >> (*data & 3));
        else
            write_record(pool, (size_t)(*data & 0x7F) * 129);
    }
    return 0;
}
