#include "python/call_object.h"

#include <pjsua2.hpp>

/* The number is private, and nothing public changes it. An explicit instantiation may name what is private
 * (ISO C++ [temp.explicit]), so that the compiler still checks name and type. */
template <pjsua_call_id pj::Call::*number> struct Opened {
    friend pjsua_call_id &number_of(pj::Call &call)
    {
        return call.*number;
    }
};

template struct Opened<&pj::Call::id>;

pjsua_call_id &number_of(pj::Call &call);

void call_object_let_go(void *call)
{
    number_of(*static_cast<pj::Call *>(call)) = PJSUA_INVALID_ID;
}
