/* pjsua2's objects for calls and accounts. */
#ifndef TRUNKLINE_PYTHON_PJ_OBJECTS_H
#define TRUNKLINE_PYTHON_PJ_OBJECTS_H

#ifdef __cplusplus
extern "C" {
#endif

/* A `pj::Call` whose call is over gives up its number. PJSUA gives the number to the next call at once, and pjsua2's
 * destructor, which runs later, would hang up that one and cut it off from its own object. */
void pj_call_detach(void *call);
/* A `pj::Account` whose account is deleted gives up its number, and is not valid any more. PJSUA gives the number to the next
 * account: the object would make its calls with that one's password, and pjsua2's destructor would delete it. */
void pj_account_detach(void *account);

#ifdef __cplusplus
}
#endif

#endif
