/* PJSUA's call table. A call keeps its entry until its last transaction is over, for 32 s if a peer answers neither our INVITE
 * nor our BYE; a new call takes such an entry if the table is full. */
#ifndef TRUNKLINE_SIP_CALL_TABLE_H
#define TRUNKLINE_SIP_CALL_TABLE_H

/* Frees the entries of the calls that were hung up longest ago if the table is full. Call it with no lock of PJSIP held. */
void call_table_make_room(void);

/* Number of used entries. */
unsigned call_table_used(void);

#endif
