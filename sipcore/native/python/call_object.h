/* pjsua2's objects for calls. */
#ifndef TRUNKLINE_PYTHON_CALL_OBJECT_H
#define TRUNKLINE_PYTHON_CALL_OBJECT_H

#ifdef __cplusplus
extern "C" {
#endif

/* Let a `pj::Call` whose call is over forget its number. PJSUA gives the number to the next call at once, and pjsua2's
 * destructor, which runs later, would hang up that one and cut it off from its own object. */
void call_object_let_go(void *call);

#ifdef __cplusplus
}
#endif

#endif
