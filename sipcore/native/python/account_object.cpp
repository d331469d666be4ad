#include "python/account_object.h"

#include <pjsua2.hpp>

/* The number is private, and nothing public changes it; see call_object.cpp. */
template <pjsua_acc_id pj::Account::*number> struct OpenedAccount {
    friend pjsua_acc_id &number_of(pj::Account &account)
    {
        return account.*number;
    }
};

template struct OpenedAccount<&pj::Account::id>;

pjsua_acc_id &number_of(pj::Account &account);

void account_object_let_go(void *account)
{
    number_of(*static_cast<pj::Account *>(account)) = PJSUA_INVALID_ID;
}
