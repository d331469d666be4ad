#include "python/pj_objects.h"

#include <pjsua2.hpp>

/* The numbers are private, and nothing public changes them. An explicit instantiation may name what is private
 * (ISO C++ [temp.explicit]), so that the compiler still checks name and type. */
template <typename Object, int Object::*number> struct Opened {
    friend int &number_of(Object &object)
    {
        return object.*number;
    }
};

template struct Opened<pj::Call, &pj::Call::id>;
template struct Opened<pj::Account, &pj::Account::id>;

pjsua_call_id &number_of(pj::Call &call);
pjsua_acc_id &number_of(pj::Account &account);

void pj_call_detach(void *call)
{
    number_of(*static_cast<pj::Call *>(call)) = PJSUA_INVALID_ID;
}

void pj_account_detach(void *account)
{
    number_of(*static_cast<pj::Account *>(account)) = PJSUA_INVALID_ID;
}
