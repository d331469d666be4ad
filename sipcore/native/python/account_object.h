/* pjsua2's objects for accounts. */
#ifndef TRUNKLINE_PYTHON_ACCOUNT_OBJECT_H
#define TRUNKLINE_PYTHON_ACCOUNT_OBJECT_H

#ifdef __cplusplus
extern "C" {
#endif

/* Let a `pj::Account` whose account is deleted forget its number, so that it is not valid any more. PJSUA gives the number
 * to the next account: the object would make its calls with that one's password, and pjsua2's destructor would delete it. */
void account_object_let_go(void *account);

#ifdef __cplusplus
}
#endif

#endif
