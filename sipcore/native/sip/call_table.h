/* PJSUA's table of calls. A call keeps its place until its last transaction is over, for 32 s when a peer answers neither
 * our INVITE nor our BYE; such calls make room when a new one has none. */
#ifndef TRUNKLINE_SIP_CALL_TABLE_H
#define TRUNKLINE_SIP_CALL_TABLE_H

/* Let those that were hung up longest ago go, should the table be full. The caller holds no lock of PJSIP. */
void call_table_make_room(void);

/* Places that are taken. */
unsigned call_table_used(void);

#endif
